"""Plugins of an application: checked, started in the right order, stopped in the reverse one.

`Application` and `AsyncApplication` hold plugins; `Plugin` and `AsyncPlugin` are what to derive
from; `Services` is what plugins offer each other.
"""

from __future__ import annotations

from hypercube_plugins.__about__ import __version__
from hypercube_plugins._application import Application, AsyncApplication
from hypercube_plugins._declaration import RESERVED_NAMES, Declaration, Requirement
from hypercube_plugins._errors import (
    DependencyCycle,
    DuplicatePlugin,
    DuplicateService,
    InvalidPlugin,
    InvalidService,
    LifecycleError,
    PluginError,
    PluginFailed,
    ReservedName,
    ServiceCycle,
    ServiceError,
    ServiceNotFound,
    ServiceNotReady,
    ShutdownFailed,
    Stage,
    Unmet,
    UnmetRequirements,
)
from hypercube_plugins._plugin import AsyncPlugin, Plugin
from hypercube_plugins._registration import Registration, Shared
from hypercube_plugins._services import Factory, Hosted, Provision, Services, ServiceType
from hypercube_plugins._tree import mermaid, tree

__all__ = [
    "RESERVED_NAMES",
    "Application",
    "AsyncApplication",
    "AsyncPlugin",
    "Declaration",
    "DependencyCycle",
    "DuplicatePlugin",
    "DuplicateService",
    "Factory",
    "Hosted",
    "InvalidPlugin",
    "InvalidService",
    "LifecycleError",
    "Plugin",
    "PluginError",
    "PluginFailed",
    "Provision",
    "Registration",
    "Requirement",
    "ReservedName",
    "ServiceCycle",
    "ServiceError",
    "ServiceNotFound",
    "ServiceNotReady",
    "ServiceType",
    "Services",
    "Shared",
    "ShutdownFailed",
    "Stage",
    "Unmet",
    "UnmetRequirements",
    "__version__",
    "mermaid",
    "tree",
]
