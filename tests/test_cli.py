"""The command line: kube-scheduler's flags, one sentence for every mistake, and an exit code for every end."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

import neuron_scheduler
from neuron_scheduler import cli
from neuron_scheduler.settings.config import Config, settings
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ConfigurationError, LeaseLostError
from tests.test_architecture import MAY_IMPORT, room_of


@attrs.define(eq=False)
class App:
    """A fake of `app.py`: stores the configuration and ends as the test says."""

    config: Config | None = None
    end: Callable[[], Awaitable[None]] | None = None

    async def run(self, config: Config) -> None:
        """Run as the scheduler would."""
        self.config = config
        if self.end is not None:
            await self.end()


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    """Replace the application by the fake, and do not configure logging."""
    stand_in = App()
    module = SimpleNamespace(run=stand_in.run)
    monkeypatch.setitem(sys.modules, "neuron_scheduler.app", module)
    monkeypatch.setattr(neuron_scheduler, "app", module, raising=False)
    monkeypatch.setattr(logs, "configure", lambda **_: None)
    return stand_in


def ending_with(error: Exception) -> Callable[[], Awaitable[None]]:
    """Return an end that raises from within a task group, as the real application does."""

    async def end() -> None:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("again", [error])])

    return end


def test_no_flags_are_the_defaults(app: App) -> None:
    """`run` without flags has the default configuration."""
    assert cli.main(["run"]) == 0
    assert app.config == Config()


def test_flags_are_read_as_go_reads_them(app: App) -> None:
    """Durations with units, truth values bare or with a value, the short -v in its three spellings."""
    arguments = [
        "--scheduler-name=mine",
        "--leader-elect",
        "--leader-elect-lease-duration=30s",
        "--leader-elect-renew-deadline",
        "20s",
        "--kube-api-qps=50",
        "--port=0",
        "-v=4",
        "--pod-max-in-unschedulable-pods-duration=1m30s",
    ]
    assert cli.main(["run", *arguments]) == 0
    assert app.config == Config(
        scheduler_name="mine",
        leader_elect_lease_duration=30.0,
        leader_elect_renew_deadline=20.0,
        kube_api_qps=50.0,
        port=0,
        v=4,
        pod_max_in_unschedulable_pods_duration=90.0,
    )


@pytest.mark.parametrize(
    ("arguments", "file", "address"),
    [
        pytest.param([], "", ":12345", id="the port of AWS's extension"),
        pytest.param(["--extender-bind-address=[::1]:1"], "", "[::1]:1", id="a flag"),
        pytest.param([], "extender: {bindAddress: ':7'}", ":7", id="a file"),
        pytest.param(["--extender-bind-address=:8"], "extender: {bindAddress: ':7'}", ":8", id="a flag over a file"),
    ],
)
def test_the_extender_alone(app: App, tmp_path: Path, arguments: list[str], file: str, address: str) -> None:
    """`extender` has the settings of `run`, no queue, and a port unless it is told another one."""
    path = tmp_path / "config.yaml"
    path.write_text(f"apiVersion: neuron-scheduler/v1\nkind: NeuronSchedulerConfiguration\nport: 0\n{file}\n")
    assert cli.main(["extender", f"--config={path}", "--v=4", *arguments]) == 0
    assert app.config == Config(queue=False, extender_bind_address=address, port=0, v=4)
    assert cli.main(["run"]) == 0
    assert app.config == Config(queue=True, extender_bind_address="")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(
            [],
            "say what to do: run, extender, ",
            id="no command",
        ),
        pytest.param(["fly"], "invalid choice: 'fly'", id="no such command"),
        pytest.param(["run", "--prot=1"], "unknown flag --prot; did you mean --port?", id="misspelt"),
        pytest.param(["run", "--qqq"], "unknown flag --qqq; see neuron-scheduler run --help", id="unknown"),
        pytest.param(["run", "--lead"], "unknown flag --lead", id="abbreviations are not guessed"),
        pytest.param(
            ["run", "--profiling=false"],
            "--profiling is a flag of kube-scheduler that has no effect here; remove it",
            id="kube-scheduler's own",
        ),
        pytest.param(["run", "now"], "unexpected argument 'now'; see neuron-scheduler run --help", id="an argument"),
        pytest.param(["why", "a", "--node", "\udcff"], "the argument '\\udcff' is not UTF-8", id="other bytes"),
        pytest.param(["run", "--port"], "--port: expected one argument", id="no value"),
        pytest.param(["run", "--port=x"], "--port: 'x' is not a number", id="no number"),
        pytest.param(
            ["run", "--shutdown-grace-period=5"],
            "--shutdown-grace-period: '5' is not a duration; write 15s, 1m30s or 500ms",
            id="no unit",
        ),
        pytest.param(["run", "--leader-elect=maybe"], "--leader-elect: 'maybe' is neither true nor false", id="maybe"),
        pytest.param(["run", "--port=-1"], "--port is -1; it must be 0 to 65535", id="out of range"),
        pytest.param(["run", "--config=/no/such"], "--config: /no/such cannot be read", id="no settings"),
        pytest.param(
            ["extender", "--extender-bind-address="],
            "the command extender needs --extender-bind-address",
            id="an extender without a port",
        ),
    ],
)
def test_mistakes(app: App, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    """Every mistake is one line on stderr and exit code 2, and nothing runs."""
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("neuron-scheduler: ")
    assert sentence in err
    assert app.config is None


@pytest.mark.parametrize(
    ("error", "code", "stderr"),
    [
        pytest.param(
            ConfigurationError("the ServiceAccount may not list pods; apply manifests/"),
            2,
            "neuron-scheduler: the ServiceAccount may not list pods; apply manifests/\n",
            id="no rights",
        ),
        pytest.param(LeaseLostError("not renewed for 10 s"), 1, "", id="lost the Lease"),
        pytest.param(ZeroDivisionError("a bug"), 1, "", id="crashed"),
    ],
)
def test_ends(
    app: App,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    *,
    error: Exception,
    code: int,
    stderr: str,
) -> None:
    """A missing right is one sentence and 2; a lost Lease and a crash are a log line and 1, a crash with traceback."""
    app.end = ending_with(error)
    assert cli.main(["run"]) == code
    assert capsys.readouterr().err == stderr
    pairs = [getattr(record, "pairs", {}) for record in caplog.records]
    assert [pair["err"] for pair in pairs] == ([] if stderr else [str(error)])
    assert any("stack" in pair for pair in pairs) == isinstance(error, ZeroDivisionError)


def test_it_runs_on_uvloop(app: App) -> None:
    """The event loop is uvloop's."""
    seen = []

    async def look() -> None:
        seen.append(type(asyncio.get_running_loop()).__module__)

    app.end = look
    assert cli.main(["run"]) == 0
    assert seen == ["uvloop"]


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Both print and leave with 0; help names every flag and the risk of the risky one."""
    for arguments in (["--version"], ["run", "--help"], ["extender", "--help"]):
        with pytest.raises(SystemExit) as left:
            cli.main(arguments)
        assert left.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"neuron-scheduler {neuron_scheduler.__version__}\n")
    assert "RISK" in out
    for field in settings():
        assert f"--{field.name.replace('_', '-')} " in out


def test_the_modules_of_the_commands() -> None:
    """Each exists, is of a room that the command line may import, and has what a command needs."""
    for command in cli.COMMANDS:
        assert room_of(command.module) in MAY_IMPORT["cli"]
        module = command.load()
        assert callable(module.add_arguments)
        assert callable(module.run)


def test_the_plugin_has_the_commands_that_ask(capsys: pytest.CaptureFixture[str]) -> None:
    """It does not run a scheduler, and its own name is in its help and its errors."""
    with pytest.raises(SystemExit):
        cli.main(["--help"], program=cli.PLUGIN)
    out = capsys.readouterr().out
    assert out.startswith("usage: kubectl neuron ")
    assert "check" in out
    assert "extender" not in out
    assert cli.main(["run"], program=cli.PLUGIN) == 2
    assert capsys.readouterr().err.startswith("kubectl neuron: ")
