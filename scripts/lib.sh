# Sourced by the scripts beside it: makes .venv in the project's root and keeps it up to date.
#
# Two sets can be installed: `demo` (the package and its command line) and `full` (all extras, and all that tests and
# lint use). .venv/installed says which set it holds and of what sources, so a second run installs nothing. All output
# goes to stderr: stdout belongs to the command that follows.
# Environment: PYTHON names the interpreter to build on; without it the first usable one is taken.

set -eu

ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
VENV=$ROOT/.venv
VENV_PYTHON=$VENV/bin/python

say() {
    printf '%s\n' "$*" >&2
}

has_uv() {
    command -v uv >/dev/null 2>&1
}

# Prints an interpreter that can make the environment.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3.13 python3.12 python3.11 python3
    fi
    for candidate; do
        if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    say "none of these is Python 3.11 or newer with pip and venv: $*; write PYTHON=/path/to/python sh $0"
    return 2
}

make_venv() {
    if has_uv; then
        rm -rf "$VENV"
        uv venv --quiet --python "${PYTHON:->=3.11}" "$VENV"
    else
        python=$(find_python)
        rm -rf "$VENV"
        "$python" -m venv "$VENV"
    fi
}

# Whether .venv runs, and on the interpreter that PYTHON names.
venv_fits() {
    build='import sys; assert sys.version_info >= (3, 11); print(sys.base_prefix, sys.version)'
    made_of=$("$VENV_PYTHON" -c "$build" 2>/dev/null) || return 1
    [ -z "${PYTHON:-}" ] || [ "$made_of" = "$("$PYTHON" -c "$build" 2>/dev/null)" ]
}

# fill_venv SET: the package is editable, so a changed source shows without another install.
fill_venv() {
    case $1 in
        demo) set -- --editable "${ROOT}[cli]" ;;
        full) set -- --editable "${ROOT}[all]" --group "$ROOT/pyproject.toml:dev" ;;
    esac
    if has_uv; then
        uv pip install --quiet --compile-bytecode --python "$VENV_PYTHON" "$@"
        return
    fi
    export PIP_DISABLE_PIP_VERSION_CHECK=1
    # An environment that uv made has no pip.
    "$VENV_PYTHON" -m pip --version >/dev/null 2>&1 || "$VENV_PYTHON" -m ensurepip >/dev/null
    # --group came with pip 25.1; the pip that Python 3.11 brings is older.
    [ $# = 2 ] || "$VENV_PYTHON" -m pip install --quiet 'pip>=25.1'
    "$VENV_PYTHON" -m pip install --quiet --compile "$@"
}

compile_sources() {
    "$VENV_PYTHON" -m compileall -q "$ROOT/src"
}

# ensure_venv SET
ensure_venv() {
    # The path is part of it: a copied .venv still points at the tree that it came from.
    sources="$(cat "$ROOT/pyproject.toml" "$ROOT/scripts/lib.sh" | cksum) $ROOT"
    installed=$(cat "$VENV/installed" 2>/dev/null) || installed=
    case $installed in
        "" | *" $ROOT") venv_fits || installed=unfit ;;
        *) installed=unfit ;;
    esac
    case $installed in
        "full $sources" | "$1 $sources") return ;;
    esac
    say "setting up $VENV ($1) ..."
    {
        [ "$installed" != unfit ] || make_venv
        rm -f "$VENV/installed"
        fill_venv "$1"
        compile_sources
    } >&2
    printf '%s\n' "$1 $sources" >"$VENV/installed"
}
