"""NVTX ranges by which the collector tells pass, layer and op of a PyTorch step: "step" with one leaf open inside it at any time.

A leaf is switched, never nested: hooks in front of and behind modules switch it in the forward; in the backward a hook in front of the
node that made a labelled tensor does, so what runs between nodes (bias sums, sums of fan-out) falls to the leaf that was open, too."""
import contextlib
import os
import re
import sys
import weakref

import torch
from torch.nn.modules import module as nn_module
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import _compiled

LOSS, EMBEDDING = "classifier/-/loss", "encoder/-/embedding"

# Names of Hugging Face, nanoGPT and llm.c: (leaf while it runs, leaf after it; None: as before).
_IN_BLOCK = {
    "ln_1": ("ln1", None), "attn": (None, "residual1"), "attn.c_attn": ("qkv", "attention"), "attn.c_proj": ("attproj", None),
    "ln_2": ("ln2", None), "mlp": (None, "residual2"), "mlp.c_fc": ("mlp_up", None), "mlp.act": ("gelu", None), "mlp.gelu": ("gelu", None),
    "mlp.c_proj": ("mlp_down", None),
}
_OUTSIDE = {"wte": (EMBEDDING, EMBEDDING), "wpe": (EMBEDDING, EMBEDDING), "ln_f": ("forward/-/lnf", None),
            "lm_head": ("forward/-/lm_head", LOSS)}
_BLOCK = re.compile(r"(?:.*\.)?h\.(\d+)\.(.+)")


def leaves_of(name):
    """(leaf while the module of this name runs, leaf after it), or None for a name that says nothing."""
    name = name.replace("_orig_mod.", "").removeprefix("module.").removeprefix("transformer.")
    inside = _BLOCK.fullmatch(name)
    if inside is None:
        return _OUTSIDE.get(name)
    found = _IN_BLOCK.get(inside[2])
    return found and tuple(f"forward/{inside[1]}/{op}" if op else None for op in found)


class Nvtx:
    """Where ranges go. Tests give another one."""

    def push(self, name):
        torch.cuda.nvtx.range_push(name)

    def pop(self):
        torch.cuda.nvtx.range_pop()


class _Cursor:
    def __init__(self, sink):
        self.sink, self.now = sink, None

    def set(self, leaf):
        if leaf == self.now:
            return
        if self.now is not None:
            self.sink.pop()
        self.now = leaf
        if leaf is not None:
            self.sink.push(leaf)


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _tensors(v)
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from _tensors(v)


class _Labels:
    """The hooks of one profile() block."""

    def __init__(self, cursor):
        self.cursor, self.depth, self.names = cursor, 0, weakref.WeakKeyDictionary()

    def label(self, value, leaf):
        """The backward of what made these tensors belongs to the leaf. The first label of a node stays: a module and the last module
        inside it share one."""
        if leaf is None or torch._C._current_graph_task_id() != -1:
            return
        for node in (n for t in _tensors(value) for n in (t.grad_fn, t._base.grad_fn if t._base is not None else None)):
            # The base of a view as well: replaced attention goes on from there.
            if node is not None and "stepscope" not in node.metadata:
                node.metadata["stepscope"] = leaf
                backward = "backward/" + leaf.split("/", 1)[1]
                node.register_prehook(lambda gradients, backward=backward: self.cursor.set(backward))

    def leaves(self, module):
        if self.depth == 0 and module not in self.names:
            for name, inner in module.named_modules():
                self.names.setdefault(inner, leaves_of(name))
            self.names.setdefault(module, None)
        return self.names.get(module)

    def before(self, module, inputs):
        if torch.compiler.is_compiling():
            return
        found = self.leaves(module)
        self.depth += 1
        if found and found[0]:
            self.label(inputs, self.cursor.now)
            self.cursor.set(self._in_this_pass(found[0]))

    def after(self, module, inputs, output):
        if torch.compiler.is_compiling():
            return
        found = self.names.get(module)
        self.depth = max(0, self.depth - 1)
        if found:
            self.label(output, found[0])
            if found[1]:
                self.cursor.set(self._in_this_pass(found[1]))
        elif self.depth == 0:
            self.label([t for t in _tensors(dict(output) if hasattr(output, "keys") else output) if t.dim() == 0], LOSS)

    @staticmethod
    def _in_this_pass(leaf):
        """A forward that runs inside the backward (activation checkpointing) is the backward's work."""
        return "backward/" + leaf.split("/", 1)[1] if torch._C._current_graph_task_id() != -1 else leaf


@contextlib.contextmanager
def _clipping(cursor):
    """torch.nn.utils.clip_grad_norm_ as the optimizer's op, for callers that reach it by that name."""
    utils, before = torch.nn.utils, torch.nn.utils.clip_grad_norm_

    def clip(*arguments, **settings):
        cursor.set("optimizer/-/grad_norm")
        return before(*arguments, **settings)

    utils.clip_grad_norm_ = clip
    try:
        yield
    finally:
        utils.clip_grad_norm_ = before


def listening():
    """Whether this process runs under stepscope's collector."""
    return bool(os.environ.get("STEPSCOPE_COLLECT"))


def prepare():
    """Before a program compiles anything: under the collector, compiled programs get ranges."""
    why = _compiled.install(leaves_of, LOSS) if listening() else None
    if why:
        print(f"stepscope.profile: kernels of compiled programs stay without ranges: {why}", file=sys.stderr)


_told = False


def _tell_how(name):
    global _told
    if not _told:
        _told = True
        script = sys.argv[0] or "train.py"
        print(f"stepscope.profile: nobody listens to the ranges. Run: stepscope profile --step-range {name} -- python3 {script}", file=sys.stderr)


@contextlib.contextmanager
def profile(name="step", *, sink=None):
    """Around one training step: forward, loss, backward and optimizer become ranges by pass, layer and op, for
    `stepscope profile --step-range NAME -- python3 train.py`. Modules are known by the names that GPT-2 has in Hugging Face, nanoGPT and
    llm.c. Without the collector the block runs as if nothing were around it, and a line on stderr says how to run it.

    The backward runs on the calling thread inside, so that its ranges and launches are one thread's. A module that torch.compile
    compiled by Inductor calls no hooks and switches the ranges itself (_compiled.py), unless it replays CUDA graphs."""
    if sink is None and not listening():
        _tell_how(name)
        yield
        return
    sink = sink or Nvtx()
    cursor = _Cursor(sink)
    labels = _Labels(cursor)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        for handle in (nn_module.register_module_forward_pre_hook(labels.before), nn_module.register_module_forward_hook(labels.after),
                       register_optimizer_step_pre_hook(lambda *a: cursor.set("optimizer/-/adamw")),
                       register_optimizer_step_post_hook(lambda *a: cursor.set("optimizer/-/zero_grad"))):
            stack.callback(handle.remove)
        stack.enter_context(_clipping(cursor))
        stack.callback(_compiled.follow, _compiled.follow(cursor))
        sink.push(name)
        stack.callback(sink.pop)
        cursor.set("other/-/copy")
        stack.callback(cursor.set, None)
        yield
