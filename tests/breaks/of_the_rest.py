"""Breaks of what surrounds the decision: controllers, the API, the extender, answers, the process, the installation."""

from typing import Final

from tests.breaks.broken import Break, Share

CONTROLLERS: Final = (
    Break(
        "a-refused-pod-keeps-its-place",
        "neuron_scheduler/controllers/binding_cycle.py",
        """
        case Refused() as refusal:
            self._forget(commitment)
            requester.refused(commitment, refusal)
        """,
        """
        case Refused() as refusal:
            requester.refused(commitment, refusal)
        """,
        "The devices of a pod whose Binding was refused are free again.",
        ("tests/controllers/test_binding_cycle.py",),
    ),
    Break(
        "nobody-hears-of-space-that-is-not-taken",
        "neuron_scheduler/controllers/binding_cycle.py",
        "note_freed(self.cluster, self.queue, commitment.pod, commitment.decision.node_name)",
        "pass",
        "A Binding that fails wakes the pods that wait for its space.",
        ("tests/controllers/test_binding_cycle.py::test_what_is_not_bound_gives_its_place_back",),
    ),
    Break(
        "two-pods-stand-before-the-device-plugin",
        "neuron_scheduler/controllers/allocate_fence.py",
        "if at + LONGEST > now:",
        "if at > now:",
        "A Binding waits until the pod that the device plugin could confuse with its own has started.",
        ("tests/controllers/test_allocate_fence.py",),
    ),
    Break(
        "a-binding-that-waited-is-sent-unseen",
        "neuron_scheduler/controllers/allocate_fence.py",
        """
        outcome = self._obstacle(commitment)
        if outcome is None:
            node.let_through(commitment.pod)
        """,
        """
        outcome = None
        if outcome is None:
            node.let_through(commitment.pod)
        """,
        "A Binding that waited at the fence is looked at again before it is sent.",
        ("tests/controllers/test_allocate_fence.py",),
    ),
    Break(
        "two-bindings-of-one-moment",
        "neuron_scheduler/controllers/allocate_fence.py",
        "self._last_stamp = max(self.wall_clock(), self._last_stamp + 1, node_info.last_alloc_time + 1)",
        "self._last_stamp = max(self.wall_clock(), self._last_stamp, node_info.last_alloc_time)",
        "No two Bindings of a node have one NEURON_ALLOC_TIME.",
        ("tests/controllers/test_allocate_fence.py",),
    ),
    Break(
        "a-decision-is-not-assumed",
        "neuron_scheduler/controllers/scheduling_loop.py",
        "annotations = self.assumptions.told(taken)",
        "annotations = self.assumptions.told(taken)\n        self.cluster.forget(queued.pod.uid)",
        "A decision counts at once, before the API server knows of it.",
        ("tests/controllers/test_allocate_fence.py",),
    ),
    Break(
        "a-node-that-rejects-is-chosen-again",
        "neuron_scheduler/controllers/rejections.py",
        "if reason != OTHER and node_info is not None:",
        "if reason == OTHER and node_info is not None:",
        "A node whose kubelet rejects pods is chosen last.",
        ("tests/controllers/test_rejections.py",),
    ),
    Break(
        "space-is-kept-for-ever",
        "neuron_scheduler/controllers/foreign_nominations.py",
        "if now - wish.since > LONGEST and self.cluster.nomination(wish.pod.uid) is not None:",
        "if now - wish.since < 0 and self.cluster.nomination(wish.pod.uid) is not None:",
        "Space that kube-scheduler has nominated is kept for a limited time.",
        ("tests/controllers/test_foreign_nominations.py::test_nothing_is_kept_for_ever",),
    ),
    Break(
        "a-late-renewal-still-binds",
        "neuron_scheduler/controllers/leader_elector.py",
        "return self._renewed_at is not None and self.clock() < self._renewed_at + self.renew_deadline",
        "return self._renewed_at is not None",
        "Nothing is bound after the renew deadline: another replica may lead by then.",
        ("tests/controllers/test_leader_elector.py::test_no_bind_is_started_after_the_deadline",),
    ),
    Break(
        "a-term-counts-from-its-answer",
        "neuron_scheduler/controllers/leader_elector.py",
        "self._record, self._renewed_at = record, sent_at\n        return True",
        "self._record, self._renewed_at = record, self.clock()\n        return True",
        "The deadline counts from when the Lease was asked for, not from the answer.",
        ("tests/controllers/test_leader_elector.py::test_the_send_time_counts_not_the_answer",),
    ),
    Break(
        "the-lease-is-kept-after-the-end",
        "neuron_scheduler/controllers/leader_elector.py",
        'holder="", duration=1, acquired=now, renewed=now)',
        "duration=1, acquired=now, renewed=now)",
        "A clean stop gives the Lease back.",
        ("tests/controllers/test_leader_elector.py::test_release",),
    ),
    Break(
        "a-pod-that-ends-frees-its-devices",
        "neuron_scheduler/controllers/handlers/pods.py",
        """
        self.queue.remove(pod.uid)
        before, nominated = self.cluster.pod_info(pod.uid), self.cluster.nomination(pod.uid)
        """,
        """
        self.queue.remove(pod.uid)
        if pod.terminating:
            self.cluster.remove_pod(pod.uid)
            return
        before, nominated = self.cluster.pod_info(pod.uid), self.cluster.nomination(pod.uid)
        """,
        "A pod that is being deleted holds its devices until it is gone.",
        ("tests/simulation/test_simulation.py",),
    ),
    Break(
        "nobody-hears-of-a-pod-that-is-gone",
        "neuron_scheduler/controllers/handlers/pods.py",
        """
        if name is not None or nominated_node is not None:
            self._note(ClusterEvent.ASSIGNED_POD_GONE, old)
        """,
        """
        if nominated_node is not None:
            self._note(ClusterEvent.ASSIGNED_POD_GONE, old)
        """,
        "A pod that is gone wakes the pods that wait for its space.",
        ("tests/controllers/handlers/test_pods.py",),
    ),
    Break(
        "a-node-that-changes-wakes-nobody",
        "neuron_scheduler/controllers/handlers/nodes.py",
        "self._note(new, events)",
        "self._note(new, events[1:])",
        "A label that a pod waits for wakes it.",
        ("tests/controllers/handlers/test_nodes.py::test_a_label_wakes_the_pod_that_waits_for_it",),
    ),
)

KUBE: Final = (
    Break(
        "a-deletion-is-lost",
        "neuron_scheduler/kube/watch/informer.py",
        """
        if event_type == "DELETED":
            self.events += 1
            self._store.remove(decoded.key)
        """,
        """
        if event_type == "DELETED":
            self.events += 1
        """,
        "An object that is deleted is seen to be gone.",
        ("tests/kube/watch/test_informer.py::test_list_and_watch",),
    ),
    Break(
        "an-expired-version-is-watched-for-ever",
        "neuron_scheduler/kube/watch/informer.py",
        "if _is_dead_end(error) or self._failures % TRIES == 0:",
        "if self._failures % TRIES == 0:",
        "A watch that gets 410 lists again at once.",
        ("tests/kube/watch/test_informer.py::test_a_dead_end_is_listed_again",),
    ),
    Break(
        "a-list-forgets-nothing",
        "neuron_scheduler/kube/watch/informer.py",
        "for key in self._store.missing({decoded.key for page in listed for decoded in page}):",
        "for key in ():",
        "What a new list does not have any more is gone.",
        ("tests/kube/watch/test_informer.py",),
    ),
    Break(
        "the-second-page-is-never-read",
        "neuron_scheduler/kube/watch/informer.py",
        "listed.append(sorted(page.objects, key=self.resource.position))",
        "listed[:] = [sorted(page.objects, key=self.resource.position)]",
        "A list has the objects of all its pages.",
        ("tests/kube/watch/test_informer.py::test_pages_in_the_order_of_creation",),
    ),
    Break(
        "a-refusal-is-taken-for-a-success",
        "neuron_scheduler/kube/writes/binder.py",
        "return Refused(error.status, self._message(error), retryable=temporary)",
        "return Bound()",
        "A Binding that the API server refused is not bound.",
        ("tests/kube/writes/test_binder.py::test_outcomes",),
    ),
    Break(
        "a-server-error-settles-a-binding",
        "neuron_scheduler/kube/writes/binder.py",
        "if binding.unknown or not error.refused:",
        "if binding.unknown and not error.refused:",
        "After a 5xx a Binding is in doubt, and is sent again.",
        ("tests/kube/writes/test_binder.py::test_outcomes",),
    ),
    Break(
        "a-conflict-is-not-looked-into",
        "neuron_scheduler/kube/writes/binder.py",
        "if pod.spec.node_name == binding.node_name and _carries(pod.metadata.annotations or {}, binding.annotations):",
        "if pod.spec.node_name == binding.node_name:",
        "A pod on the right node is bound by us only with the annotations that we sent.",
        ("tests/kube/writes/test_binder.py::test_outcomes",),
    ),
    Break(
        "a-binding-is-sent-without-the-lease",
        "neuron_scheduler/kube/http/http1.py",
        "if permit is not None and not permit():",
        "if permit is not None and not permit() and False:",
        "A Binding asks whether it may be sent right before its first byte.",
        ("tests/kube/http/test_http1.py::test_a_fence_keeps_the_connection", "tests/kube/writes/test_binder.py"),
    ),
    Break(
        "two-replicas-renew-one-lease",
        "neuron_scheduler/kube/writes/lease.py",
        'metadata["resourceVersion"] = record.resource_version',
        'metadata["generateName"] = record.resource_version',
        "A write of the Lease fails if somebody else has written it since.",
        ("tests/kube/writes/test_lease.py",),
    ),
    Break(
        "a-cut-answer-is-an-answer",
        "neuron_scheduler/kube/http/http1.py",
        'self._answer.set_exception(exc or ConnectionError("the server closed the connection"))',
        'self._answer.set_result(Answer(200, b"", b"{}", True))',
        "A connection that is reset in the middle of an answer leaves the outcome open.",
        ("tests/kube/http/test_http1.py",),
    ),
    Break(
        "any-pod-of-that-name-is-evicted",
        "neuron_scheduler/kube/writes/evictor.py",
        ', "preconditions": {"uid": victim.uid}',
        "",
        "Only the pod that was chosen is evicted, not a later one of its name.",
        ("tests/kube/writes/test_evictor.py",),
    ),
    Break(
        "a-hostile-pod-has-no-limit",
        "neuron_scheduler/kube/objects/pod_limits.py",
        "if count > most:",
        "if count > most * 1_000_000:",
        "A pod with thousands of terms is refused, and delays nobody.",
        ("tests/kube/objects/test_pod_limits.py",),
    ),
)

EXTENDER: Final = (
    Break(
        "an-unknown-node-passes",
        "neuron_scheduler/extender/candidates.py",
        "result.failed_and_unresolvable_nodes[name] = UNKNOWN_NODE",
        "result.node_names.append(name)",
        "kube-scheduler is not told to use a node that we do not know.",
        ("tests/extender/test_candidates.py",),
    ),
    Break(
        "a-bound-pod-passes-everywhere",
        "neuron_scheduler/extender/candidates.py",
        "passing = [name for name in names if name == placed]",
        "passing = [name for name in names if name]",
        "A pod whose Binding is under way passes on its node only.",
        ("tests/extender/test_candidates.py",),
    ),
    Break(
        "pods-of-our-queue-are-bound-for-others",
        "neuron_scheduler/extender/bind.py",
        "if pod.scheduler_name in self.own_names:",
        "if pod.scheduler_name in ():",
        "No pod is placed by two schedulers.",
        ("tests/extender/test_bind.py",),
    ),
    Break(
        "kube-scheduler-evicts-what-it-does-not-know",
        "neuron_scheduler/extender/preempt.py",
        "here = attrs.evolve(incoming, spared=self._unknown_to_kube_scheduler(node_name))",
        "here = incoming",
        "kube-scheduler is told no victims that it does not have on the node.",
        ("tests/extender/test_preempt.py",),
    ),
)

ANSWERS: Final = (
    Break(
        "why-names-pods-that-come-back",
        "neuron_scheduler/explain/changes/departure.py",
        "if info.pod.owner is None or info.pod.owner.kind not in _COMING_BACK",
        "if info.pod.owner is None or info.pod.owner.kind",
        "`why` does not suggest to end a pod that its DaemonSet starts again on the node.",
        ("tests/explain/changes/test_search.py::test_pods_that_come_back",),
    ),
    Break(
        "why-names-too-few-pods",
        "neuron_scheduler/explain/changes/departure.py",
        "yield _change(refused, refused.cluster.view.row(best[0]), best[1].pods)",
        "yield _change(refused, refused.cluster.view.row(best[0]), best[1].pods[:1])",
        "Each change that `why` offers lets the pod in.",
        ("tests/explain/changes/test_search_properties.py",),
    ),
    Break(
        "why-suggests-to-tolerate-a-sick-node",
        "neuron_scheduler/cluster/fresh_node.py",
        "return taint.key.startswith(_OF_A_STATE) or taint.key in _OF_A_STATE_TOO or",
        "return taint.key in _OF_A_STATE_TOO or",
        "`why` suggests no toleration of a taint that tells the state of a node.",
        ("tests/explain/changes/test_search.py::test_taints_that_are_not_for_pods_to_tolerate",),
    ),
    Break(
        "a-gated-pod-is-said-to-fit",
        "neuron_scheduler/explain/why.py",
        "return _gated(answer, pod) if pod.gates else answer",
        "return answer",
        "`why` says that a pod waits for its scheduling gates.",
        ("tests/explain/test_why.py",),
    ),
    Break(
        "check-is-content-without-rights",
        "neuron_scheduler/commands/check/subjects/installation.py",
        "lacking = [right for right, allowed in rights.items() if not allowed]",
        "lacking = [right for right, allowed in rights.items() if not right]",
        "`check` names the rights that the scheduler's account lacks.",
        ("tests/commands/check/subjects/test_findings.py",),
    ),
    Break(
        "check-is-content-with-a-policy-that-only-warns",
        "neuron_scheduler/commands/check/subjects/policies.py",
        '        "validationActions": ["Deny"],\n',
        "",
        "`check` finds a policy that denies nothing.",
        ("tests/commands/check/subjects/test_details.py",),
    ),
    Break(
        "a-captured-pod-replaces-another",
        "neuron_scheduler/capture/collection.py",
        "if not uid or keys.setdefault(uid, key) != key:",
        "if not uid:",
        "In a captured cluster two pods with one uid hold what both hold.",
        ("tests/capture/test_files.py::test_pods_without_uids_of_their_own",),
    ),
    Break(
        "anybody-reads-the-metrics",
        "neuron_scheduler/serving/access.py",
        'if not public and not await self._may_get(reader, "path", request.path):',
        'if not public and not (await self._may_get(reader, "path", request.path) or reader):',
        "Only who may get the path in the API server's eyes reads it.",
        ("tests/serving/test_access.py",),
    ),
    Break(
        "a-reader-sees-other-namespaces",
        "neuron_scheduler/serving/names.py",
        "return self.shown is None or namespace == self.shown",
        "return self.shown is None or bool(self.shown) or namespace == self.shown",
        "Who may not see the pods of a namespace sees none of their names.",
        ("tests/serving/test_access.py", "tests/serving/test_names.py"),
    ),
)

PROCESS: Final = (
    Break(
        "one-machine-beyond-the-limit",
        "neuron_scheduler/capacity/requester.py",
        "if machines[whose] >= most_machines:",
        "if machines[whose] > most_machines:",
        "No more machines are asked for than the profile allows.",
        ("tests/capacity/planning/test_need.py",),
    ),
    Break(
        "a-lease-shorter-than-its-deadline-is-accepted",
        "neuron_scheduler/settings/contradictions.py",
        """
        if config.leader_elect:
            _require_lease(
        """,
        """
        if not config.leader_elect:
            _require_lease(
        """,
        "Settings with which two replicas could bind are refused at the start.",
        ("tests/settings/test_config.py::test_contradictions",),
    ),
    Break(
        "a-value-out-of-range-is-accepted",
        "neuron_scheduler/settings/setting.py",
        'return "" if low <= value <= high else f"is {_number(value)}; it must be {low:g} to {high:g}"',
        'return "" if low <= value else f"is {_number(value)}; it must be {low:g} to {high:g}"',
        "A setting beyond its range is refused.",
        ("tests/settings/test_config.py::test_contradictions",),
    ),
    Break(
        "a-library-forges-our-lines",
        "neuron_scheduler/telemetry/logs.py",
        "self.write(record.levelno, record.created, place, self.format(record), None)",
        'self._stream.write(f"{self.format(record)}\\n")',
        "A line of a library has our form, whatever text it is about.",
        ("tests/telemetry/test_logs.py",),
    ),
    Break(
        "an-attempt-is-counted-twice",
        "neuron_scheduler/telemetry/metrics.py",
        "self._attempts(result, profile).inc()",
        "self._attempts(result, profile).inc(2)",
        "Each attempt is counted once, by its result.",
        ("tests/telemetry/test_metrics.py",),
    ),
)

INSTALLATION: Final = (
    Break(
        "a-right-too-many",
        "manifests/base/rbac.yaml",
        "resources: [pods/binding]\n    verbs: [create]",
        "resources: [pods/binding]\n    verbs: [create, patch]",
        "The scheduler's account has the rights that the process needs, and no other.",
        ("tests/end_to_end/test_rights.py::test_the_manifest_has_the_rights_that_the_process_checks_at_its_start",),
    ),
    Break(
        "the-scheduler-reads-any-lease",
        "manifests/base/rbac.yaml",
        "    resourceNames: [my-scheduler]\n",
        "",
        "The scheduler's account reads and writes one Lease only.",
        ("tests/end_to_end/test_rights.py::test_the_manifest_has_the_rights_that_the_process_checks_at_its_start",),
    ),
    Break(
        "another-account-binds-with-an-allocation",
        "manifests/base/admission_bindings.yaml",
        "|| has(object.metadata.annotations)\n",
        "|| has(object.metadata.annotations) && false\n",
        "Nobody else gives a pod devices with its Binding.",
        ("tests/commands/check/subjects/test_policies.py",),
    ),
    Break(
        "who-lost-the-lease-binds",
        "manifests/base/admission_bindings.yaml",
        "|| object.metadata.annotations['neuron-scheduler/leader'] != params.spec.holderIdentity",
        "|| object.metadata.annotations['neuron-scheduler/leader'] == ''",
        "The API server refuses a Binding of a replica that does not hold the Lease.",
        ("tests/test_manifests.py::test_only_the_holder_of_the_lease_binds",),
        Share.PLANE,
    ),
    Break(
        "a-policy-that-only-warns",
        "manifests/base/admission_bindings.yaml",
        "validationActions: [Deny]",
        "validationActions: [Warn]",
        "The policies refuse, they do not only warn.",
        ("tests/security/test_policies.py::test_they_fail_closed_and_exempt_nobody",),
        Share.PLANE,
    ),
    Break(
        "the-chart-is-unlike-the-base",
        "manifests/chart/templates/deployment.yaml",
        "runAsNonRoot: true",
        "runAsNonRoot: false",
        "The chart and the kustomization install the same objects.",
        ("tests/test_chart.py::test_the_chart_and_the_kustomization_are_the_same_objects",),
        Share.PLANE,
    ),
)
