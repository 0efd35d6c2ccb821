"""The process as it is started."""

import socket
import subprocess
import sys

import pytest

from tests.end_to_end.process import ROOT
from tests.support.patience import PATIENCE


@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-", "0<&-"])
def test_closed_standard_streams(closed: str) -> None:
    """It runs and stops cleanly: no socket gets the number of a closed stream, at which libuv would abort."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        command = (
            f"exec {sys.executable} -m neuron_scheduler run --master=http://127.0.0.1:{server.getsockname()[1]}"
            " --bind-address=127.0.0.1 --port=0 --secure-port=0"
        )
        with subprocess.Popen(["sh", "-c", f"{command} {closed}"], cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            try:
                asked, _ = server.accept()
                with asked:
                    process.terminate()
                    assert process.wait(timeout=PATIENCE) == 0
            finally:
                process.kill()
