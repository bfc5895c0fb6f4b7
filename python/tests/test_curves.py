"""When a replaced training counts as one of PyTorch's."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
curves = pytest.importorskip("curves")

PYTORCH = [[5.0] * 40, [5.2] * 40, [5.1] * 40]


def of(*levels):
    return {"pytorch": PYTORCH, "replaced": [[level] * 40 for level in levels]}


def test_a_training_between_the_seeds_is_inside():
    assert curves.outside(of(5.0, 5.2, 5.1)) == []
    assert "in 2 of 2 such parts" in curves.sentence(of(5.0, 5.2, 5.1))


def test_one_that_ends_higher_is_outside_there_alone():
    drifted = {"pytorch": PYTORCH, "replaced": [c[:20] + [x + 0.2 for x in c[20:]] for c in PYTORCH]}
    assert curves.outside(drifted) == [1] and "in 1 of 2 such parts" in curves.sentence(drifted)
    assert curves.distance(drifted, "replaced") == pytest.approx(0.2)


def test_a_loss_that_is_no_number_is_outside():
    assert curves.outside(of(float("nan"), 5.2, 5.1)) == [0, 1] and curves.distance(of(float("nan"), 5.2, 5.1), "replaced") == float("inf")


def test_repetitions_of_pytorchs_belong_to_its_spread():
    higher = of(5.25, 5.25, 5.25)
    assert curves.outside(higher) == [0, 1] and curves.outside({**higher, "again": [[5.3] * 40] * 3}) == []


@pytest.mark.parametrize("given", [{"pytorch": PYTORCH[:1], "replaced": PYTORCH[:1]}, {"pytorch": PYTORCH, "replaced": [[5.1] * 20] * 3}])
def test_what_cannot_be_compared_is_no_answer(given):
    with pytest.raises(ValueError):
        curves.outside(given)
