"""Settings for a trial on one machine: an SQLite database, and leases in another file."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

BASE_DIR = Path(__file__).parents[1]

# Nothing is signed here that has to outlive a restart. Workers that share sessions need one key, from the environment.
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY") or secrets.token_urlsafe(50)
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
INSTALLED_APPS = ["shop.apps.ShopConfig", "singletonjob.integrations.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "shop.db"}}

SINGLETONJOB = {"APP": "shop.jobs:jobs", "STORE": os.environ.get("SINGLETONJOB_STORE", "sqlite")}

LOGGING = {  # who leads, and since when
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname)s: %(process)d %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
}
