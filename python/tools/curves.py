"""Losses of trainings with replaced ops, beside those of PyTorch's with the same seeds, with the same seeds again, and with other seeds."""
import math
import statistics

WINDOW = 20  # steps that a mean is of: single losses differ by their batch


def windows(curve):
    return [statistics.mean(curve[i:i + WINDOW]) for i in range(0, len(curve), WINDOW)]


def mean_of_the_last(curve):
    return statistics.mean(curve[-WINDOW:])


def distance(curves, arm):
    """The largest distance of an arm's windows from PyTorch's of the same seed; infinite where a loss is not a number."""
    gaps = [abs(a - b) for own, other in zip(curves["pytorch"], curves[arm]) for a, b in zip(windows(own), windows(other))]
    return max((math.inf if math.isnan(g) else g for g in gaps), default=math.inf)


def outside(curves):
    """Windows in which the mean of the replaced trainings is not between the lowest and the highest of PyTorch's."""
    own = list(zip(*map(windows, curves["pytorch"] + curves.get("again", []))))
    ours = list(zip(*map(windows, curves["replaced"])))
    if len(curves["pytorch"]) < 2 or len(own) != len(ours):
        raise ValueError("expected two or more seeds, and as many steps in every training")
    return [i for i, (o, r) in enumerate(zip(own, ours)) if not min(o) <= statistics.mean(r) <= max(o)]


def sentence(curves):
    again = f", a repetition of PyTorch's at most {distance(curves, 'again'):.4f}" if "again" in curves else ""
    wrong, number = outside(curves), len(windows(curves["pytorch"][0]))
    return (f"In any {WINDOW} steps the mean loss of a replaced training is at most {distance(curves, 'replaced'):.4f} from PyTorch's of the same seed"
            f"{again}. The mean of all replaced trainings lies within the spread of PyTorch's in {number - len(wrong)} of {number} such parts.")
