"""Ours against PyTorch's, in pairs that alternate (ABBA), so that a clock that drifts meets both; medians with bootstrap intervals."""
import contextlib
import copy
import dataclasses
import random
import statistics
import time
from collections.abc import Mapping

import torch

from . import _reference as reference
from ._check import loss_of, recorded_calls, run_model
from ._errors import Refused, StepscopeError
from ._swap import inside_compiled, own_class
from ._tables import table


@dataclasses.dataclass
class Row:
    what: str
    shape: str
    how: str           # "graph": replayed CUDA graphs, device time; "eager": with the host's launches; "compiled": as eager, by torch.compile
    torch_ms: float    # median
    ours_ms: float
    ratio: float       # ours / PyTorch's, median of the pairs
    low: float         # 95% interval of the ratio
    high: float

    @property
    def verdict(self):
        return "faster" if self.high < 1 else "slower" if self.low > 1 else "undecided"

    def cells(self):
        return (self.what, self.shape, self.how, f"{self.torch_ms:.4f}", f"{self.ours_ms:.4f}", f"{self.ratio:.3f}",
                f"[{self.low:.3f}, {self.high:.3f}]", self.verdict)


COLUMNS = ("what", "shape", "how", "PyTorch ms", "ours ms", "ratio", "95%", "ours is")


FUSIBLE = ("layernorm", "gelu", "loss")  # what torch.compile makes kernels of its own for


class BenchReport:
    def __init__(self, rows):
        self.rows = rows

    def __str__(self):
        return table(COLUMNS, [r.cells() for r in self.rows])


def _interval(ratios, resamples=2000):
    """Percentile bootstrap of the median, always with the same draws."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples) - 1]


def _timer(cuda):
    """times(run, repeats) -> milliseconds of one run."""
    if not cuda:
        def host(run, repeats):
            begin = time.perf_counter()
            for _ in range(repeats):
                run()
            return (time.perf_counter() - begin) * 1e3 / repeats
        return host

    def device(run, repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / repeats
    return device


def paired(what, shape, how, torch_run, our_run, *, cuda, blocks=8, block_ms=20.0):
    """Times two functions in ABBA blocks, each block's runs long enough for the clock."""
    times = _timer(cuda)
    for run in (torch_run, our_run):
        times(run, 2)
    repeats = max(1, round(block_ms / max(times(torch_run, 3), times(our_run, 3), 1e-3)))
    pairs = []
    for _ in range(blocks):
        a, b = times(torch_run, repeats), times(our_run, repeats)
        c, d = times(our_run, repeats), times(torch_run, repeats)
        pairs += [(a, b), (d, c)]
    ratios = [ours / own for own, ours in pairs]
    low, high = _interval(ratios)
    return Row(what, shape, how, statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs), statistics.median(ratios), low,
               high)


# ---- one op -----------------------------------------------------------------------------------------------------------


def _forward_and_backward(function, tensors, upstream):
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
    wanted = [t for t in leaves if t.requires_grad]

    def run():
        out = function(*leaves)
        return torch.autograd.grad(out, wanted, upstream.to(out.dtype))

    return run


def _as_graph(run):
    """The same work replayed by one launch; None where it cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            kept = run()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    graph.stepscope_outputs = kept  # they live in the graph's memory
    return graph.replay


def _torch_function(call):
    """PyTorch's op as a model runs it: on the tensors' own types, its answer in the type that the next op takes."""
    function, storage = reference.function_of(call.op, call.settings), reference.storage_of(call)
    if call.op == "layernorm" and call.tensors[0].dtype != storage:
        return lambda *t: function(*t).to(storage)
    return function


def bench_call(call, *, compiled=False, **settings):
    """Row of one recorded call, forward and backward together; compiled: PyTorch's side through torch.compile."""
    upstream = reference.upstream_for(call, 0)
    if call.op != "loss":
        upstream = upstream.to(reference.storage_of(call))
    else:
        upstream = upstream.float()
    shape = "x".join(map(str, call.tensors[0].shape))
    if call.op == "layernorm" and call.tensors[1].dtype != call.tensors[0].dtype:
        torch_tensors = tuple(t.to(call.tensors[0].dtype) for t in call.tensors)
    else:
        torch_tensors = call.tensors
    function = _torch_function(call)
    own = _forward_and_backward(torch.compile(function) if compiled else function, torch_tensors, upstream)
    ours = _forward_and_backward(call.run, call.tensors, upstream)
    cuda = call.tensors[0].is_cuda
    graphs = [_as_graph(own), _as_graph(ours)] if cuda else [None, None]
    how = ("graph" if all(graphs) else "eager") + (", PyTorch's compiled" if compiled else "")
    return paired(f"{call.op} forward+backward", shape, how, *(graphs if all(graphs) else (own, ours)), cuda=cuda, **settings)


# ---- the whole step ---------------------------------------------------------------------------------------------------


def _step(model, batch, optimizer, autocast):
    def run():
        with autocast():
            loss = loss_of(run_model(model, batch))
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        for p in model.parameters():
            p.grad = None
    return run


def _autocast(device_type, dtype):
    return (lambda: torch.autocast(device_type, dtype=dtype)) if dtype is not None else contextlib.nullcontext


def bench(model, batch, *, report, autocast=None, optimizer=None, compiled=False, ops=True, steps=None, blocks=8,
          step_block_ms=200.0):
    """Each replaced op and the whole step against PyTorch's.

    report: what replace() returned. autocast: a type (torch.bfloat16) under which steps run. optimizer: parameters -> optimizer of
    PyTorch's arm; ours is the same, replaced where `adamw` was asked of replace(). compiled: also both arms of the step through
    torch.compile, and ours against PyTorch's compiled ops. steps: ("eager", "compiled") or one of them, where `compiled` is not to say it.
    Both arms are deep copies of the model, PyTorch's with the ops given back: the steps train those, and the model's weights and gradients
    stay."""
    if not hasattr(report, "off"):
        raise Refused(f"report is {type(report).__name__}; give bench() what replace() returned for this model")
    if report.model is not inside_compiled(model):
        raise Refused(f"the report is of another model (a {own_class(report.model).__name__}); give bench() what replace() returned for this one")
    if not report.on:
        raise StepscopeError("the report's ops are off; bench() compares them with PyTorch's")
    with report.off():
        twin = copy.deepcopy(model)
    model = copy.deepcopy(model)
    device = next(model.parameters()).device
    cast, cuda = _autocast(device.type, autocast), device.type == "cuda"
    rows, seen = [], set()
    if ops:
        with cast():
            calls, _ = recorded_calls(model, batch)
        for call in calls:
            kind = (call.op, tuple(call.tensors[0].shape), call.tensors[0].dtype)
            if kind not in seen:
                seen.add(kind)
                rows.append(bench_call(call, blocks=blocks))
                if compiled and call.op in FUSIBLE:
                    rows.append(bench_call(call, compiled=True, blocks=blocks))
        del calls
    steps = steps or (("eager", "compiled") if compiled else ("eager",))
    if "eager" in steps:
        rows.append(_bench_steps("step", "eager", model, twin, batch, report, optimizer, cast, cuda, blocks, step_block_ms))
    if "compiled" in steps:
        arms = (torch.compile(model), torch.compile(twin))
        rows.append(_bench_steps("step, both compiled", "compiled", *arms, batch, report, optimizer, cast, cuda, blocks, step_block_ms))
    return BenchReport(rows)


def _bench_steps(what, how, model, twin, batch, report, optimizer, cast, cuda, blocks, block_ms):
    own = optimizer(twin.parameters()) if optimizer else None
    ours = optimizer(model.parameters()) if optimizer else None
    undo = None
    if ours is not None and "adamw" in report.chosen:
        from .optim import take_over
        undo = take_over(ours)
        if isinstance(undo, str):
            raise StepscopeError(f"the optimizer is not replaced: {undo}")
    row = paired(what, _batch_shape(batch), how, _step(twin, batch, own, cast), _step(model, batch, ours, cast), cuda=cuda, blocks=blocks,
                 block_ms=block_ms)
    if undo is not None:
        undo(False)
    return row


def _batch_shape(batch):
    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else (batch,)
    return next(("x".join(map(str, v.shape)) for v in values if isinstance(v, torch.Tensor)), "")
