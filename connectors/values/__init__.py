"""Business values: the sources that they come from. What is loaded lies in Redis (`connectors.redis.values`)."""

from connectors.values.base import KeyFault, Loaded, Loader
from connectors.values.http_loader import HttpLoader
from connectors.values.settings import HttpLoaderSettings, LoaderSettings, SqlLoaderSettings
from connectors.values.sql_loader import SqlLoader

__all__ = [
    "HttpLoader",
    "HttpLoaderSettings",
    "KeyFault",
    "Loaded",
    "Loader",
    "LoaderSettings",
    "SqlLoader",
    "SqlLoaderSettings",
]
