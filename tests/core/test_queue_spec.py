"""The JobQueue as models: what is read, what is refused and in which words, and what goes to the database."""

from __future__ import annotations

import json

import pytest

from tailrace.errors import InvalidOption
from tailrace.queue_spec import JobQueue, JobQueueSpec, read_resources, refuse_unsupported, unsupported

HEAD = "apiVersion: tailrace.dev/v1alpha1\nkind: JobQueue\nmetadata: {name: webhooks}\n"
FULL = """
apiVersion: tailrace.dev/v1alpha1
kind: JobQueue
metadata:
  name: webhooks
  namespace: team-a
  annotations: {tailrace.dev/reconcile: "enabled", tailrace.dev/restarted-at: 2026-11-27T22:00:00Z}
  resourceVersion: "7"
spec:
  controllerName: tailrace.dev/controller
  queueName: Webhooks 名前
  replicas: 1
  latencyTargetSeconds: 30
  database:
    secretRef: {name: webhooks-db, key: uri}
    schemaName: tailrace
    migrationPolicy: Automatic
    maxConnectionsPerWorker: 3
    notifications: Listen
  stopPolicy: None
  exhaustedPolicy: Discard
  worker:
    slots: 10
    drainTimeoutSeconds: 30
    terminationGracePeriodSeconds: 45
    pollPeriodSeconds: 1
    lease: {durationSeconds: 30, renewPeriodSeconds: 10}
    logging: {format: JSON, level: Info}
  jobDefaults:
    priority: 0
    timeoutSeconds: 300
    maxAttempts: 5
    maxInterruptions: 10
    payloadLimitBytes: 262144
    backoff: {strategy: FullJitter, baseSeconds: 5, maxSeconds: 900, jitterPercent: 20}
  tasks:
    - {name: deliver, timeoutSeconds: 30, maxAttempts: 8, concurrencyLimit: 50}
  limits:
    concurrency: 200
    rates: [{name: all, jobs: 1000, periodSeconds: 60, burst: 100}]
  deadLetters:
    retentionSeconds: 7776000
    autoRequeue: {afterSeconds: 3600, maxTimes: 3, errorTypes: [timeout, network]}
  history: {retentionSeconds: 86400}
  schedules:
    - name: nightly-report
      cron: "30 2 * * *"
      timeZone: Europe/Berlin
      task: build_report
      payload: {scope: all}
      catchUpSeconds: 3600
  autoscaling:
    mode: KEDA
    minReplicas: 0
    maxReplicas: 20
    targetUtilizationPercent: 75
    behavior:
      scaleUp: {stabilizationWindowSeconds: 0, selectPolicy: Max, policies: [{type: Percent, value: 100, periodSeconds: 15}]}
    keda: {pollingPeriodSeconds: 15, cooldownSeconds: 300, fallbackReplicas: 1}
  rollout: {policy: Paced, maxSurge: "25%", maxUnavailable: 1, progressDeadlineSeconds: 600}
  disruptionBudget: {policy: Managed, maxUnavailable: "25%"}
  template:
    metadata: {labels: {team: a}}
    spec: {containers: [{name: worker, image: registry.example/webhooks:1.8.2}]}
status: {observedGeneration: 7}
"""


def test_the_smallest_is_all_defaults() -> None:
    found = JobQueue.from_file(HEAD)
    assert found.queue == "webhooks"
    assert found.spec == JobQueueSpec()
    assert unsupported(found.spec) == []
    assert found.spec.database_part() == {
        "latencyTargetSeconds": 60,
        "stopPolicy": "None",
        "exhaustedPolicy": "DeadLetter",
        "worker": {"lease": {"durationSeconds": 60, "renewPeriodSeconds": 20}, "slots": 10},
        "jobDefaults": {
            "priority": 0,
            "timeoutSeconds": 300,
            "maxAttempts": 5,
            "maxInterruptions": 10,
            "payloadLimitBytes": 262144,
            "backoff": {"strategy": "Exponential", "baseSeconds": 5, "maxSeconds": 900, "jitterPercent": 20},
        },
    }


def test_the_whole_resource_is_read() -> None:
    found = JobQueue.from_file(FULL)
    assert found.queue == "Webhooks 名前"
    assert found.metadata.annotations["tailrace.dev/restarted-at"] == "2026-11-27T22:00:00Z", "a date stays the text it is"
    part = found.spec.database_part()
    words = "latencyTargetSeconds stopPolicy exhaustedPolicy worker jobDefaults tasks limits deadLetters history schedules"
    assert set(part) == {*words.split(), "autoscaling"}
    assert part["worker"] == {"lease": {"durationSeconds": 30, "renewPeriodSeconds": 10}, "slots": 10}, "the rest is its pod's"
    assert part["autoscaling"] == {"targetUtilizationPercent": 75}, "only what the demand is worked out from"
    assert part["tasks"] == {"deliver": {"timeoutSeconds": 30, "maxAttempts": 8, "concurrencyLimit": 50}}, "only what was said"
    assert json.loads(json.dumps(part)) == part


def test_json_is_yaml_too() -> None:
    assert (
        JobQueue.from_file(
            json.dumps({"apiVersion": "tailrace.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": "q"}})
        ).queue
        == "q"
    )


def test_several_documents() -> None:
    both = HEAD + "---\n" + HEAD.replace("webhooks", "images") + "---\n"
    assert [found.queue for found in read_resources(both)] == ["webhooks", "images"]
    with pytest.raises(InvalidOption, match="holds 2 JobQueues"):
        JobQueue.from_file(both)


def test_what_this_release_lacks_is_named() -> None:
    """BF-39: nothing is stored that nobody honours."""
    spec = JobQueue.from_file(FULL).spec
    assert unsupported(spec) == ["spec.autoscaling.mode", "spec.autoscaling.behavior"]
    with pytest.raises(InvalidOption, match=r"spec\.autoscaling\.mode: not in this release") as refused:
        refuse_unsupported(spec)
    assert refused.value.field == "spec.autoscaling.mode"
    refuse_unsupported(JobQueueSpec())
    behavior = "behavior: {scaleUp: {selectPolicy: Max}, scaleDown: {}}"
    written_out = f"{HEAD}spec: {{autoscaling: {{mode: Operator, maxReplicas: 3, {behavior}}}}}"
    assert unsupported(JobQueue.from_file(written_out).spec) == [], "defaults that an API server wrote out ask for nothing"
    asked = written_out.replace("scaleDown: {}", "scaleDown: {stabilizationWindowSeconds: 60}")
    assert unsupported(JobQueue.from_file(asked).spec) == ["spec.autoscaling.behavior"]
    assert unsupported(JobQueue.from_file(asked.replace("mode: Operator, ", "")).spec) == [], "it counts in no other mode"
    assert unsupported(JobQueue.from_file(HEAD + "spec: {tasks: [{name: a, maxInterruptions: 3}]}").spec) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{workers: 3}", "spec.workers: unknown field"),
        ("{worker: {slots: '10'}}", "spec.worker.slots: must be a valid integer"),
        ("{worker: {slots: 0}}", "spec.worker.slots: must be greater than or equal to 1"),
        ("{worker: {slots: 1001}}", "spec.worker.slots: must be less than or equal to 1000"),
        ("{worker: {slots: 1.5}}", "spec.worker.slots: must be a valid integer"),
        (
            "{worker: {lease: {durationSeconds: 40}}}",
            "spec.worker.lease: durationSeconds must be more than twice renewPeriodSeconds",
        ),
        ("{worker: {terminationGracePeriodSeconds: 34}}", "spec.worker: terminationGracePeriodSeconds must be at least"),
        ("{stopPolicy: hold}", "spec.stopPolicy: must be 'None', 'Hold' or 'HoldAndDrain'"),
        ("{latencyTargetSeconds: 86401}", "spec.latencyTargetSeconds"),
        ("{jobDefaults: {priority: 1001}}", "spec.jobDefaults.priority"),
        ("{jobDefaults: {maxAttempts: 0}}", "spec.jobDefaults.maxAttempts"),
        ("{jobDefaults: {payloadLimitBytes: 262145}}", "spec.jobDefaults.payloadLimitBytes"),
        ("{jobDefaults: {backoff: {baseSeconds: 901}}}", "spec.jobDefaults.backoff: baseSeconds must not exceed maxSeconds"),
        ("{tasks: [{name: a}, {name: a}]}", "spec: tasks has the name 'a' twice"),
        ("{tasks: [{timeoutSeconds: 3}]}", r"spec.tasks[0].name: is required"),
        ("{tasks: [{name: a, retries: 3}]}", r"spec.tasks[0].retries: unknown field"),
        ("{queueName: ''}", "spec.queueName"),
        (
            "{limits: {rates: [{name: a, jobs: 1, periodSeconds: 1}, {name: a, jobs: 1, periodSeconds: 1}]}}",
            "spec.limits: rates has",
        ),
        ("{schedules: [{name: a, task: t}]}", r"spec.schedules[0]: exactly one of cron and everySeconds"),
        ("{schedules: [{name: a, task: t, cron: '* * * * *', everySeconds: 5}]}", "exactly one of cron and everySeconds"),
        ("{schedules: [{name: a, task: t, cron: '* * *'}]}", r"spec.schedules[0].cron: cron must have five fields"),
        ("{schedules: [{name: a, task: t, everySeconds: 5, timeZone: Mars/Olympus}]}", "timeZone must be a name"),
        ("{schedules: [{name: a, task: t, cron: '61 * * * *'}]}", r"spec.schedules[0].cron: cron is no crontab line: bad minute"),
        ("{schedules: [{name: a, task: t, cron: '0 0 30 2 *'}]}", r"spec.schedules[0].cron: cron"),
        ("{schedules: [{name: a, task: t, everySeconds: 5, timeZone: localtime}]}", "timeZone must be a name"),
        ("{schedules: [{name: a, task: t, everySeconds: 0}]}", r"spec.schedules[0].everySeconds"),
        ("{schedules: [{name: a, task: t, everySeconds: 5, onDuplicate: After}]}", "onDuplicate counts only with key"),
        ("{schedules: [{name: a, task: t, everySeconds: 5, payload: {x: .nan}}]}", r"spec.schedules[0].payload: payload.x"),
        ("{schedules: [{name: A_b, task: t, everySeconds: 5}]}", r"spec.schedules[0].name"),
        (
            "{schedules: [{name: a, task: t, everySeconds: 5}, {name: a, task: t, everySeconds: 6}]}",
            "schedules has the name 'a' twice",
        ),
        ("{schedules: [{name: a, task: t, everySeconds: 5, payload: {x: " + "y" * 2048 + "}}]}", "payload must be at most 2 KiB"),
        ("{autoscaling: {mode: HPA}}", "spec.autoscaling: maxReplicas is required in mode HPA"),
        ("{autoscaling: {mode: HPA, minReplicas: 3, maxReplicas: 2}}", "minReplicas must not exceed maxReplicas"),
        ("{autoscaling: {minReplicas: 0}}", "minReplicas 0 needs autoscaling"),
        ("{autoscaling: {mode: HPA, maxReplicas: 2, keda: {}}}", "keda counts only in mode KEDA"),
        ("{autoscaling: {mode: KEDA, maxReplicas: 2, keda: {fallbackReplicas: 0}}}", "spec.autoscaling.keda.fallbackReplicas"),
        ("{rollout: {maxSurge: 125%}}", "spec.rollout.maxSurge"),
        (
            "{deadLetters: {autoRequeue: {afterSeconds: 60, maxTimes: 1, errorTypes: [sadness]}}}",
            "spec.deadLetters.autoRequeue.errorTypes[0]",
        ),
        ("{database: {schemaName: x}}", "spec.database.secretRef: is required"),
        ("{stopPolicy: None, stopPolicy: Hold}", "the key 'stopPolicy' is given twice"),
        ("[]", "spec: must be a valid dictionary"),
    ],
)
def test_wrong_fields_are_named_with_the_remedy(spec: str, message: str) -> None:
    """BF-39: unknown fields and values out of bounds are refused, not coerced."""
    with pytest.raises(InvalidOption) as refused:
        JobQueue.from_file(f"{HEAD}spec: {spec}\n")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "file"),
        ("---\n---\n", "file"),
        ("a: [", "file"),
        ("just words", "kind"),
        ("[1, 2]", "kind"),
        ("kind: Pod\n", "kind"),
        (HEAD.replace("v1alpha1", "v9"), "apiVersion"),
        (HEAD.replace("webhooks", "Web_hooks"), "metadata.name"),
        (HEAD.replace("webhooks", "w" * 53), "metadata.name"),
        (HEAD + "extra: 1\n", "extra"),
        (HEAD + "spec: !!python/object/apply:os.system [id]\n", "file"),
        (HEAD + "# " + "x" * 1_048_576, "file"),
    ],
)
def test_what_is_no_jobqueue(text: str, field: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        JobQueue.from_file(text)
    assert refused.value.field == field


def test_every_field_is_described() -> None:
    """The reference and `kubectl explain` are made from these."""

    def walk(schema: dict[str, object], path: str) -> None:
        for name, field in schema.get("properties", {}).items():  # type: ignore[attr-defined]
            assert field.get("description") or "$ref" in field, f"{path}.{name} says nothing"

    schema = JobQueue.model_json_schema(by_alias=True)
    walk(schema, "")
    for name, part in schema["$defs"].items():
        assert part.get("description") or "enum" in part, f"{name} says nothing"
        walk(part, name)
