"""kube-scheduler's recorded answers as a table: no server is needed, and it takes milliseconds."""

import pytest

from tests.differential.comparison import disagreements
from tests.differential.recording import FOLDER, Recording, read

RECORDINGS = {
    f"{path.stem}, world {recording.name}": recording
    for path in sorted(FOLDER.glob("*.jsonl"))
    for recording in read(path)
}


@pytest.mark.parametrize("recording", RECORDINGS.values(), ids=RECORDINGS.keys())
def test_our_filters_agree_with_the_recorded_answers(recording: Recording) -> None:
    """The feasible nodes and the counts of refusals by reason are the recorded ones."""
    different = list(disagreements(recording))
    assert not different, "\n\n".join(different)


def test_there_are_recordings_of_many_scenarios() -> None:
    """An empty folder proves nothing."""
    assert sum(len(recording.answers) for recording in RECORDINGS.values()) >= 200
