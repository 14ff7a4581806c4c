"""Static registration for frozen programs: which job classes a package has, and the module that registers them."""
