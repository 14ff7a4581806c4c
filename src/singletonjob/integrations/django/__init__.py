"""Jobs of a Django project: `INSTALLED_APPS += ["singletonjob.integrations.django"]`, and in the settings

    SINGLETONJOB = {"APP": "shop.jobs:app"}

The processes that serve take part by themselves; `manage.py singletonjobs run` is a process for the jobs alone.
"""

__all__: list[str] = []
