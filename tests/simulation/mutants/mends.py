"""
Faults that reviews and runs with random faults found before there was a simulation, and what notices if one comes back.

A mutant takes back the mend of a fault that a simulation can reach (`Mutant.mend` has its number). TLS, ports, signals
of the kernel, the memory of a process and the admission policies of a real API server are not simulated: there a test
on the real thing is named. Refuses to repeat what the mutants say.
"""

from typing import Final

import attrs


@attrs.frozen
class Mend:
    """
    The mend of one fault.

    Attributes:
        number: of the fault.
        what: can go wrong without the mend.
        tests: that fail then, as `file::test`.
    """

    number: int
    what: str
    tests: tuple[str, ...] = ()


_PREEMPTION: Final = "tests/controllers/test_preemption_executor.py"
MENDS: Final = (
    Mend(
        1,
        "an authority without key identifiers, as EKS has it, is refused by Python 3.13",
        ("tests/kube/http/test_trust.py::test_an_authority_as_eks_has_it",),
    ),
    Mend(
        2,
        "an object that is nested a thousand deep, or an attempt that raises, ends the process",
        (
            "tests/end_to_end/test_bad_watches.py::test_deep_managed_fields_cost_nothing",
            "tests/controllers/test_binding_cycle.py::test_an_exception_in_an_attempt_is_that_pods_error",
        ),
    ),
    Mend(
        3,
        "48 pods that cannot be bound stop all Bindings",
        (
            "tests/end_to_end/test_doubts.py::test_bindings_in_doubt_delay_no_other",
            "tests/end_to_end/test_doubts.py::test_pods_that_can_take_no_annotations_delay_no_other",
        ),
    ),
    Mend(
        4,
        "a leader renews its Lease and never schedules",
        ("tests/end_to_end/test_liveness.py::test_a_decision_without_end_ends_the_process",),
    ),
    Mend(
        5,
        "a watch fails at the same version for ever, or is silent for minutes",
        ("tests/end_to_end/test_bad_watches.py::test_a_watch_that_never_works_is_replaced_by_lists",),
    ),
    Mend(6, "a proxy's answer counts", ("tests/faults/test_commit_path.py::test_a_pod_whose_request_meets_a_fault",)),
    Mend(
        7,
        "conditions that cannot be written delay others, and Bindings",
        ("tests/end_to_end/test_doubts.py::test_conditions_that_cannot_be_written_delay_nothing",),
    ),
    Mend(
        8,
        "a long decision costs the Lease",
        (
            "tests/end_to_end/test_liveness.py::test_a_long_decision_does_not_cost_the_lease",
            "tests/end_to_end/test_hostile_pods.py::test_nine_thousand_topology_keys",
        ),
    ),
    Mend(
        9,
        "a pod that is created with a node name makes the node's devices unknown, and nobody is told",
        ("tests/end_to_end/test_foreign_pods.py::test_pods_that_were_created_with_a_node_are_named",),
    ),
    Mend(
        10,
        "after the scheduler is removed and installed again, no Binding is admitted",
        (
            "tests/end_to_end/test_reinstall.py::test_it_can_be_removed_and_installed_again",
            "tests/end_to_end/test_reinstall.py::test_a_server_that_lost_the_watch_is_recognised",
        ),
    ),
    Mend(
        11,
        "large objects take more memory than the container has",
        ("tests/kube/watch/test_memory.py::test_large_pods_are_listed_and_watched_in_little_memory",),
    ),
    Mend(
        12,
        "a port is open in one family of addresses only",
        ("tests/endpoints/test_listener.py::test_an_unspecified_address_is_both_families",),
    ),
    Mend(
        13,
        "credentials: `as` is ignored, a token file or a slow plugin blocks all requests",
        (
            "tests/end_to_end/test_kubeconfigs.py::test_acting_as_somebody_without_rights",
            "tests/end_to_end/test_kubeconfigs.py::test_a_slow_plugin_does_not_cost_the_lease",
        ),
    ),
    Mend(
        14,
        "a second signal ends the process wrongly, and a full log pipe stops it",
        (
            "tests/end_to_end/test_exit_codes.py::test_a_second_signal_hurries",
            "tests/end_to_end/test_stalled_log.py::test_it_schedules_and_stops_as_asked",
        ),
    ),
    Mend(
        15,
        "an odd answer ends the process, or stops it for as long as it says",
        (
            "tests/kube/http/test_hostile_answers.py::test_no_exception_of_a_library_ends_more_than_its_request",
            "tests/kube/http/test_answer_fuzz.py::test_what_is_damaged_is_refused_or_read_alike",
        ),
    ),
    Mend(
        16,
        "clients of /metrics delay Bindings",
        ("tests/endpoints/test_listener.py::test_a_probe_does_not_wait_for_a_flood",),
    ),
    Mend(
        17,
        "what the manifests say of the rights, and a deletion of victims without the Lease",
        ("tests/test_manifests.py::test_the_scheduler_changes_no_metadata_of_a_pod",),
    ),
    Mend(
        18,
        "an answer with managedFields that are too deep for the decoder leaves a Binding in doubt for ever",
        ("tests/kube/objects/test_stored_object.py::test_deep_managed_fields_change_nothing",),
    ),
    Mend(
        19,
        "the tasks of a replica grow with the pods that it evicts",
        ("tests/controllers/test_victim_evictions.py::test_the_number_of_tasks_does_not_depend_on_that_of_victims",),
    ),
)
