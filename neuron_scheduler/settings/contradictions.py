"""
Which values and combinations of settings are refused, in one sentence each.

Most rules are in the modules of what they are about; here they are applied to a `Config`, which each function gets.
Refuses to declare a setting, and to import `config`, which does that.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from neuron_scheduler.settings import endpoint_ports, extender_port, lease_times
from neuron_scheduler.settings.profile_config import require_distinct, require_usable_requests
from neuron_scheduler.settings.setting import camel, declared, flag
from neuron_scheduler.telemetry.errors import ConfigurationError


def require_usable(config: Any, *, of_a_profile: Sequence[str]) -> None:
    """
    Check settings; `of_a_profile` are the names of those that each profile has for itself.

    Raises:
        ConfigurationError: a value is out of range, or two contradict each other.
    """
    for field in declared(type(config)):
        _require(config, field.name, flag(field.name), getattr(config, field.name))
    _require_profiles(config, of_a_profile)
    if config.pod_initial_backoff_seconds > config.pod_max_backoff_seconds:
        raise ConfigurationError(
            f"--pod-initial-backoff-seconds ({config.pod_initial_backoff_seconds:g}) is longer than"
            f" --pod-max-backoff-seconds ({config.pod_max_backoff_seconds:g})"
        )
    if config.leader_elect:
        lease_times.require_order(
            lease=config.leader_elect_lease_duration,
            renew=config.leader_elect_renew_deadline,
            retry=config.leader_elect_retry_period,
        )
    _require_ports(config)


def _require_profiles(config: Any, of_a_profile: Sequence[str]) -> None:
    for profile in config.profiles:
        _require(config, "scheduler_name", "schedulerName", profile.scheduler_name)
    require_distinct(config.profiles)
    for profile in config.profiles:
        for name in of_a_profile:
            _require(config, name, f"{camel(name)} of {profile.scheduler_name!r}", getattr(profile, name))
        require_usable_requests(profile, queue=config.queue)


def _require_ports(config: Any) -> None:
    endpoint_ports.require_consistent(
        port=config.port,
        secure_port=config.secure_port,
        cert_file=config.tls_cert_file,
        key_file=config.tls_private_key_file,
        authorize_metrics=config.authorize_metrics,
    )
    endpoint_ports.require_reachable(
        answer_questions=config.answer_questions,
        serve_page=config.serve_page,
        listens=bool(config.port) or config.serves_tls,
    )
    extender_port.require_consistent(
        config.extender_bind_address,
        cert_file=config.extender_tls_cert_file,
        key_file=config.extender_tls_private_key_file,
        client_ca_file=config.extender_client_ca_file,
        others={"--port": config.port, "--secure-port": config.secure_port if config.serves_tls else 0},
        needed=not config.queue,
    )


def _require(config: Any, name: str, described: str, value: object) -> None:
    """Raise ConfigurationError if the setting of this name may not have this value."""
    complaint = attrs.fields_dict(type(config))[name].metadata["check"](value)
    if complaint:
        raise ConfigurationError(f"{described} {complaint}")
