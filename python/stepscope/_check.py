"""Every replaced op against PyTorch in float64, on the tensors that the user's own model gave it and on rows made to break it; beside it
PyTorch's own error in the same types. The budget is twice that, and never less than the rounding of the type.

Some inputs have no answer that accurate. The mean of a constant row, off by half a unit in its last place, is multiplied by
1/sqrt(eps) = 316; where one score wins a row, the gradient of the scores is the difference of two equal sums. So an error also passes, row
by row, that is at most twice what the truth moves by when float32's roundings are put into its inputs (attention: into its sums,
_reference.py). That is backward stability (N. Higham, Accuracy and Stability of Numerical Algorithms, section 1.5). On ordinary rows it is
less than the rounding of the type, so it is only computed where the budget does not hold."""
import contextlib
import dataclasses
import math
from collections.abc import Mapping

import torch

from . import _reference as reference
from . import _ops, functional
from ._errors import CheckFailed, Refused, StepscopeError
from ._swap import is_replaced
from ._tables import number, table

# A tensor that passes through one or two roundings to bfloat16 (8 bits) or float32 (24 bits) cannot be nearer than this.
FLOOR = {torch.bfloat16: 2.0**-8, torch.float32: 2.0**-20, torch.float64: 2.0**-46}
FACTOR = 2.0
DRAWS = 8


@dataclasses.dataclass
class Row:
    op: str
    site: str
    shape: tuple
    tensor: str
    error: float          # |ours - truth| / |truth| over the whole tensor
    torch_error: float    # the same of PyTorch in the same types
    row_error: float      # the worst row's
    torch_row_error: float
    budget: float
    worst: str            # where the worst row is and what stands there
    ok: bool
    row_limit: float = 0.0  # what the worst row may have

    def cells(self):
        return (self.op, self.site, "x".join(map(str, self.shape)), self.tensor, number(self.error), number(self.torch_error),
                number(self.budget), number(self.row_error), number(self.torch_row_error), "ok" if self.ok else "WORSE", self.worst)


COLUMNS = ("op", "site", "shape", "tensor", "error", "PyTorch's", "budget", "worst row", "PyTorch's", "", "where")


class CheckReport:
    def __init__(self, rows):
        self.rows = rows

    @property
    def ok(self):
        return all(r.ok for r in self.rows)

    def worst(self):
        """One row for each (op, tensor): the one nearest to its budget, or beyond it."""
        best = {}
        for r in self.rows:
            key = (r.op, r.tensor)
            if key not in best or _strain(r) > _strain(best[key]):
                best[key] = r
        return list(best.values())

    def __str__(self):
        shown = self.worst() if self.ok else [r for r in self.rows if not r.ok]
        return f"{len(self.rows)} tensors compared\n" + table(COLUMNS, [r.cells() for r in shown])


def _strain(row):
    ratio = max(row.error / row.budget, row.row_error / row.row_limit) if row.row_limit else math.inf
    return math.inf if ratio != ratio else ratio


def _errors(got, truth):
    """(error of the whole, error of each row). A row is measured against its own norm, but not against less than a thousandth of the mean
    one: a row that is zero by nature has no relative error. NaN counts as infinite."""
    difference, truth = reference.as_rows(got.double() - truth), reference.as_rows(truth)
    if not difference.numel():
        return 0.0, difference.new_zeros(1)
    norm = truth.norm()
    whole = (difference.norm() / norm.clamp_min(1e-300)).item()
    rows = difference.norm(dim=1) / truth.norm(dim=1).clamp_min(1e-3 * (norm / math.sqrt(len(truth))).item() + 1e-300)
    return (math.inf if math.isnan(whole) else whole), torch.where(rows.isnan(), torch.inf, rows)


def moved_by_rounding(call, upstream, truth):
    """[(whole, each row)] of the errors that float32's rounding puts into the truth (reference.py), the largest of some draws."""
    moved = [(0.0, torch.zeros((), dtype=torch.float64, device=truth[0].device))] * len(truth)
    for draw in range(DRAWS):
        for i, (got, t) in enumerate(zip(reference.forward_and_gradients_rounded(call, upstream, 1000 + draw), truth)):
            whole, rows = _errors(got, t)
            moved[i] = (max(whole, moved[i][0]), torch.maximum(rows, moved[i][1]))
    return moved


def _within(error, budget, row_errors, limits):
    """Where PyTorch's own answer overflowed, its error is infinite and so is the budget; an answer that is no number is wrong all the same."""
    return error <= budget and math.isfinite(error) and bool(((row_errors <= limits) & row_errors.isfinite()).all())


def _where(got, truth, at):
    if not truth.numel():
        return "empty"
    got, truth = reference.as_rows(got.double())[at], reference.as_rows(truth)[at]
    difference = (got - truth).abs()
    column = int(torch.where(difference.isnan(), torch.inf, difference).argmax())
    return f"row {at} column {column}: {got[column].item():.5g}, truth {truth[column].item():.5g}"


def _malformed(call, name, ours, own, truth):
    """What is wrong with the form of an answer, so that its numbers need no look; "" where nothing is."""
    if ours is None:
        return "no gradient: the kernel's backward gave none, or the kernel computes where autograd does not look (no_grad, detach)"
    if ours.shape != truth.shape:
        return f"shape {tuple(ours.shape)}, PyTorch's is {tuple(truth.shape)}"
    # Wider than PyTorch's costs memory and time that nobody asked for. Narrower is what autocast means for our layernorm; the error says
    # whether it is enough. A loss may be wider than its logits, and gradients have their tensors' types.
    if name == "out" and call.op != "loss" and ours.dtype.itemsize > own.dtype.itemsize:
        return f"type {_ops.word_of(ours.dtype)}, PyTorch's is {_ops.word_of(own.dtype)}"
    return ""


class _NotFinite(Refused):
    """A call to which there is no right answer."""


def compare(call, seed=0):
    """Rows of one recorded call. A shape or type of an answer that is not PyTorch's is a row as well."""
    storage = reference.storage_of(call)
    if storage not in FLOOR:
        raise Refused(f"{call.op}: its tensors are {_ops.word_of(storage)}; a check knows the rounding of float32, bfloat16 and float64 only")
    upstream = reference.upstream_for(call, seed)
    function = reference.function_of(call.op, call.settings)
    truth = reference.forward_and_gradients(function, reference.converted(call, torch.float64), upstream)
    own = reference.forward_and_gradients(function, reference.converted(call, storage), upstream)
    if any(not t.isfinite().all() for t in truth):
        where = f" at {call.site}" if call.site else ""
        raise _NotFinite(f"{call.op}: PyTorch's answer to what this batch gives it{where} is not finite in float64 either (a loss without any "
                         "target that counts, weights that are NaN), so no kernel can be compared with it; give another batch")
    ours = reference.forward_and_gradients(call.run, call.tensors, upstream)
    shape, rows, moved = tuple(call.tensors[0].shape), [], None
    for i, (name, o, p, t) in enumerate(zip(reference.tensor_names(call.op), ours, own, truth)):
        wrong = _malformed(call, name, o, p, t)
        if wrong:
            rows.append(Row(call.op, call.site, shape, name, error=math.inf, torch_error=0, row_error=math.inf, torch_row_error=0,
                            budget=FLOOR[storage], worst=wrong, ok=False))
            continue
        error, row_errors = _errors(o, t)
        torch_error, torch_rows = _errors(p, t)
        budget = max(FLOOR[storage], FACTOR * torch_error)
        limits = torch.full_like(row_errors, max(4 * FLOOR[storage], FACTOR * torch_rows.max().item()))
        if not _within(error, budget, row_errors, limits):
            moved = moved or moved_by_rounding(call, upstream, truth)
            budget = max(budget, FACTOR * moved[i][0])
            limits = torch.maximum(limits, FACTOR * moved[i][1])
        ok = _within(error, budget, row_errors, limits)
        at = int((row_errors / limits).nan_to_num(nan=math.inf).argmax())  # inf / inf: the row that overflowed
        rows.append(Row(call.op, call.site, shape, name, error, torch_error, row_errors[at].item(), torch_rows[at].item(), budget,
                        _where(o, t, at), ok, limits[at].item()))
    return rows


def hostile(op, like, settings, run):
    """A call with rows that break careless kernels: an outlier, zeros, a constant, a large mean, small and large numbers."""
    generator = torch.Generator().manual_seed(1)
    base = like[0]
    width = base.shape[-1]
    x = torch.randn((8, width) if op != "attention" else (1, 8, width), generator=generator)
    rows = x.view(-1, width)
    rows[1, width // 2] = 1e4
    rows[2] = 0
    rows[3] = 7.25
    rows[4] += 30
    rows[5] *= 1e-4
    rows[6] *= 30
    if op == "attention":
        rows *= 0.5
        rows[1, width // 2] = 40
        rows[4] -= 14
    tensors = [x.to(base)] + [t.clone() for t in like[1:]]
    if op == "loss":
        tensors[1] = torch.arange(8, device=base.device) % width
    call = functional.Call(op, tuple(tensors), settings, run)
    call.site = "hostile rows"
    return call


@contextlib.contextmanager
def named_sites(model):
    """Calls recorded inside carry the name of the module that made them."""
    handles = [m.register_forward_pre_hook(lambda module, inputs, name=name: functional.set_site(name))
               for name, m in model.named_modules() if is_replaced(m)]
    try:
        yield
    finally:
        for h in handles:
            h.remove()
        functional.set_site("")


def run_model(model, batch):
    """model(**batch), model(*batch) or model(batch)."""
    if not isinstance(batch, (Mapping, tuple, list, torch.Tensor)):
        raise Refused(f"the batch is {type(batch).__name__}, expected what the model is called with: a tensor, a tuple of its arguments, or a dict")
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def loss_of(output):
    """The scalar of a model's answer."""
    for candidate in (getattr(output, "loss", None), *(output if isinstance(output, (tuple, list)) else (output,))):
        if isinstance(candidate, torch.Tensor) and candidate.dim() == 0:
            return candidate
    raise Refused("the model's answer holds no scalar loss; give a batch with targets")


def recorded_calls(model, batch):
    if not isinstance(model, torch.nn.Module):
        raise Refused(f"the model is {type(model).__name__}, expected a torch.nn.Module that replace() changed")
    with named_sites(model), functional.recorded() as calls, torch.no_grad():
        output = run_model(model, batch)
    if any(not t.numel() for call in calls for t in call.tensors):
        raise Refused(f"{next(c.op for c in calls if any(not t.numel() for t in c.tensors))}: the batch gives it a tensor without elements, "
                      "of which nothing can be compared or timed")
    if not calls:
        raise StepscopeError("no replaced op ran in this model: call replace() first, and give check() the model itself, not a compiled one")
    return calls, output


def cut(call, most_rows):
    """A loss over at most so many rows, or its float64 copies would not fit: the first that hold a target which counts. Behind a long prompt
    whose labels are ignored the first rows alone have no loss."""
    if call.op == "loss" and call.tensors[0].shape[0] > most_rows:
        counted = (call.tensors[1] != call.settings["ignored"]).nonzero()
        begin = int(counted[0]) if len(counted) and counted[0] >= most_rows else 0
        call.tensors = tuple(t[begin:begin + most_rows] for t in call.tensors)
    return call


def check(model, batch, *, seed=0, hostile_rows=True, most_loss_rows=2048):
    """Runs the model on a batch and every replaced op's forward and gradients on what it was given there, against PyTorch in float64.

    An op passes where its error is at most twice PyTorch's own in the same types, over the whole tensor and in the worst row, and no
    NaN appears. Returns a report (print it); raises CheckFailed with the failing rows as a table. A loss is compared on `most_loss_rows` rows:
    the first, or where none of those counts, the first that counts and those behind it."""
    calls, output = recorded_calls(model, batch)
    rows, seen, unanswered = [], set(), None
    for call in calls:
        try:
            rows += compare(cut(call, most_loss_rows), seed)
            kind = (call.op, call.tensors[0].shape[-1], call.tensors[0].dtype)
            if hostile_rows and kind not in seen:
                seen.add(kind)
                rows += compare(hostile(call.op, call.tensors, call.settings, call.run), seed)
        except _NotFinite as e:  # one of our ops in front of it may have made the NaN, and then its rows say so
            unanswered = unanswered or e
    report = CheckReport(rows)
    if not report.ok:
        raise CheckFailed(f"{sum(not r.ok for r in rows)} of {len(rows)} tensors are worse than {FACTOR:g} x PyTorch's own error\n{report}", rows)
    if unanswered:
        raise unanswered
    _refuse_a_dead_batch(output)
    return report


def _refuse_a_dead_batch(output):
    """A loss near zero has gradients near zero, of which any relative error is noise."""
    try:
        loss = loss_of(output).item()
    except Refused:
        return
    if loss < 0.1:
        raise Refused(f"the loss of this batch is {loss:.3g}: its gradients are too small to compare; draw targets that the model cannot know")
