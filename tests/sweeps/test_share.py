"""The tasks of a scheduler divide the work among them: each number once, whatever the first and the step."""

import pytest

from fdgjax.sweeps.share import share_of
from fdgjax.utils.errors import UserError


def array(first: int, count: int, step: int) -> list[dict[str, str]]:
    """The variables of each task of `--array=FIRST-LAST:STEP`."""
    common = {
        "SLURM_ARRAY_TASK_COUNT": str(count),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_STEP": str(step),
    }
    return [common | {"SLURM_ARRAY_TASK_ID": str(first + step * place)} for place in range(count)]


def pods(count: int) -> list[dict[str, str]]:
    return [{"JOB_COMPLETION_INDEX": str(index), "JOB_COMPLETIONS": str(count)} for index in range(count)]


@pytest.mark.parametrize("tasks", [array(1, 8, 1), array(0, 3, 1), array(7, 1, 1), array(2, 4, 5), pods(8), pods(1)])
def test_every_task_has_another_share(tasks: list[dict[str, str]]) -> None:
    shares = [share_of("auto", environment) for environment in tasks]
    assert shares == [(number, len(tasks)) for number in range(1, len(tasks) + 1)]


def test_a_share_that_is_given_is_taken() -> None:
    assert share_of("3/8", array(1, 2, 1)[0]) == (3, 8)


@pytest.mark.parametrize("word", ["0/2", "3/2", "1", "a/b", "1/2/3", "", "-1/2", "\N{SUPERSCRIPT TWO}/2"])
def test_a_share_that_there_is_not_is_refused(word: str) -> None:
    with pytest.raises(UserError, match=r"--shard got '.*'; expected I/N with 1 <= I <= N"):
        share_of(word, {})


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "got no scheduler; expected a task of a SLURM array"),
        ({"SLURM_JOB_ID": "1"}, "got no scheduler"),
        ({"JOB_COMPLETION_INDEX": "1"}, "that has JOB_COMPLETIONS, too"),
        ({"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "2"}, "task 2 of 2"),
        (array(1, 2, 1)[0] | {"SLURM_ARRAY_TASK_COUNT": "many"}, "'many'"),
        # --array=1,2,9: of three tasks the third would be the ninth.
        (array(1, 3, 1)[0] | {"SLURM_ARRAY_TASK_ID": "9"}, "expected tasks without gaps"),
        (array(1, 3, 2)[0] | {"SLURM_ARRAY_TASK_ID": "4"}, "expected tasks without gaps"),
        (array(1, 3, 1)[0] | {"SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_STEP": "0"}, "expected tasks without gaps"),
    ],
)
def test_a_scheduler_that_does_not_say_the_share_is_one_line(environment: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        share_of("auto", environment)
    assert "\n" not in str(error.value)
