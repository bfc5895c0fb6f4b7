"""AdamW in one launch: torch.optim.AdamW whose parameters lie in one flat vector, with the same formula and the same state."""
import collections
import functools
import weakref

import torch

from . import _library, _ops
from ._errors import Refused

_UNIT = 8  # elements: every parameter begins at a multiple of 16 bytes in either storage


def _why_not_settings(groups):
    """The part of _why_not that is asked again at every step, because any group may be changed at any time."""
    for flag in ("amsgrad", "maximize", "differentiable", "capturable"):
        if any(g.get(flag) for g in groups):
            return f"{flag}=True has no kernel"
    if any(isinstance(g["lr"], torch.Tensor) for g in groups):
        return "its learning rate is a tensor; give a float"
    for name in ("lr", "betas", "eps"):
        if any(g[name] != groups[0][name] for g in groups):
            return f"its groups differ in {name}; the kernel has one for all"
    if len({g["weight_decay"] for g in groups} - {0}) > 1:
        return "its groups have more than one weight decay besides 0"
    return None


def _decayed_and_rest(groups):
    return tuple([p for g in groups if bool(g["weight_decay"]) == decayed for p in g["params"]] for decayed in (True, False))


def _steps_taken(optimizer, parameters):
    states = [optimizer.state.get(p) for p in parameters]
    return {int(s["step"]) if s else 0 for s in states}


def _why_not(optimizer):
    """Why an optimizer cannot be taken over; None when it can."""
    if type(optimizer) is _Taken:
        return "it steps with the kernel already"
    if type(optimizer) is not torch.optim.AdamW:
        return f"it is {type(optimizer).__name__}, not torch.optim.AdamW"
    if "step" in vars(optimizer) and not _is_of_scheduler(optimizer.step):
        return "its step was set on the instance (optimizer.step = …) and would run in place of the kernel; set it after the replacement"
    why = _why_not_settings(optimizer.param_groups)
    if why:
        return why
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    if not parameters:
        return "it has no parameters"
    if len({*map(id, parameters)}) < len(parameters):
        return "a parameter is in its groups more than once"
    kinds = {type(p.data) for p in parameters}
    if kinds != {torch.Tensor}:
        return f"its parameters are {', '.join(sorted(k.__name__ for k in kinds))}, which cannot lie in one flat vector of this process"
    if len(_steps_taken(optimizer, parameters)) > 1:
        return "its parameters took different numbers of steps; the kernel has one number for all"
    if len({p.device for p in parameters}) > 1:
        return "its parameters lie on several devices"
    for p in parameters[:1]:
        if not _ops.has_kernels(p.device):
            return f"its parameters are on {p.device} and the kernel runs on CUDA devices; make the optimizer after moving the model"
    kinds = {p.dtype for p in parameters}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.bfloat16}:
        words = ", ".join(sorted(_ops.word_of(k) for k in kinds))
        return f"its parameters are {words}; the kernel takes all float32 or all bfloat16"
    return None


@torch.no_grad()
def _refresh(fine, newest):
    """fine, in float32, becomes the newest; where that is fine rounded, nobody wrote it since, and fine stays."""
    newest = newest.to(fine.device)
    fine.copy_(torch.where((fine.to(newest.dtype) == newest).all(), fine, newest))  # no question that waits for the device


class _Flat:
    """Parameters as views of one vector, those with weight decay first; m, v and gradients beside it."""

    def __init__(self, optimizer):
        decayed, rest = _decayed_and_rest(optimizer.param_groups)
        self.parameters, self.decayed_parameters = decayed + rest, decayed
        self.device, self.dtype = self.parameters[0].device, self.parameters[0].dtype
        sizes = [-(-p.numel() // _UNIT) * _UNIT for p in self.parameters]
        self.decayed, total = sum(sizes[: len(decayed)]), sum(sizes)
        self.values, self.m, self.v, self.gradients = (torch.zeros(total, device=self.device) for _ in range(4))
        narrow = self.dtype == torch.bfloat16
        self.rounded = torch.zeros(total if narrow else 0, device=self.device, dtype=torch.bfloat16)
        self.clip_scale = torch.ones(1, device=self.device)
        self.views = {name: [] for name in ("values", "m", "v", "gradients", "rounded")}
        offset = 0
        for p, size in zip(self.parameters, sizes):
            for name in self.views if narrow else ("values", "m", "v", "gradients"):
                self.views[name].append(getattr(self, name)[offset:offset + p.numel()].view(p.shape))
            offset += size
        self._move(optimizer, self.views["rounded" if narrow else "values"])

    def _move(self, optimizer, homes):
        for i, (p, home) in enumerate(zip(self.parameters, homes)):
            self.views["values"][i].copy_(p.data)
            home.copy_(p.data)
            p.data = home
        self.homes = [h.data_ptr() for h in homes]
        self.versions = [p._version for p in self.parameters]
        self.read(optimizer)

    def read(self, optimizer):
        """Takes the state as torch.optim.AdamW keeps it; a parameter without one begins anew."""
        self.step, = _steps_taken(optimizer, self.parameters)
        for p, m, v in zip(self.parameters, self.views["m"], self.views["v"]):
            state = optimizer.state.get(p)
            if state:
                _refresh(m, state["exp_avg"])
                _refresh(v, state["exp_avg_sq"])
            else:
                m.zero_()
                v.zero_()

    def load(self, optimizer, state_dict):
        """Takes what optimizer.load_state_dict has loaded. The moments are those of the state_dict, which that has rounded to the parameters'
        type; where a hook changed them behind that, they are the optimizer's."""
        parameters, saved = ([p for g in groups for p in g["params"]] for groups in (optimizer.param_groups, state_dict["param_groups"]))
        states = {p: state_dict["state"].get(key, {}) for p, key in zip(parameters, saved)}
        for name, moments in (("exp_avg", self.views["m"]), ("exp_avg_sq", self.views["v"])):
            for p, moment in zip(self.parameters, moments):
                if name in states.get(p, {}):
                    moment.copy_(states[p][name])
        self.read(optimizer)

    def goes_on(self, optimizer):
        """Takes the optimizer again, which PyTorch had for a while; False where its groups or the memory of its parameters are others."""
        if self.why_changed(optimizer.param_groups) or any(p.data_ptr() != home for p, home in zip(self.parameters, self.homes)):
            return False
        if self.rounded.numel():
            for p, master in zip(self.parameters, self.views["values"]):
                _refresh(master, p)
        self.versions = [p._version for p in self.parameters]
        self.read(optimizer)
        return True

    def why_changed(self, groups):
        """Why the groups can no longer be stepped; None when they can."""
        why = _why_not_settings(groups)
        if why:
            return why
        decayed, rest = _decayed_and_rest(groups)
        if {*map(id, decayed + rest)} != {*map(id, self.parameters)}:
            return "its parameters are others"
        if decayed and {*map(id, decayed)} != {*map(id, self.decayed_parameters)}:  # a weight decay of 0 for all is no question of which
            return "its weight decay is on other parameters"
        return None

    def state(self, groups, dtype=torch.float32, copy=False):
        """The state as torch.optim.AdamW keeps it. Its step wants the parameters' type, and a fused one the number of steps on their device."""
        device = self.device if any(g.get("fused") for g in groups) else torch.device("cpu")

        def step():
            return torch.tensor(float(self.step), dtype=torch.float32, device=device)

        return collections.defaultdict(dict, {p: {"step": step(), "exp_avg": m.to(dtype, copy=copy), "exp_avg_sq": v.to(dtype, copy=copy)}
                                              for p, m, v in zip(self.parameters, self.views["m"], self.views["v"])})


def _step(self, closure=None):
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    flat = self._stepscope_flat
    if flat.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise Refused("adamw: a step copies its settings from the host, which a captured graph would replay unchanged; step outside the capture")
    changed = flat.why_changed(self.param_groups)
    if changed:
        raise Refused(f"adamw: the optimizer's groups were changed after it was taken over: {changed}. Change that back, or step with "
                      "PyTorch's: undo() of the report, and torch.optim.AdamW in place of stepscope.AdamW")
    for p, home in zip(flat.parameters, flat.homes):
        if p.data_ptr() != home:
            raise Refused(f"adamw: a parameter of shape {tuple(p.shape)} was given other memory after the optimizer was taken over; make the "
                          "optimizer after moving or converting the model")
        if p.grad is None:
            raise Refused(f"adamw: a parameter of shape {tuple(p.shape)} has no gradient; the kernel updates all of them")
    with torch.no_grad():
        if flat.rounded.numel():
            # Weights that were written since the last step (a checkpoint, a clamp) count, as with PyTorch, not the masters they came from.
            for p, master, seen in zip(flat.parameters, flat.views["values"], flat.versions):
                if p._version != seen:
                    master.copy_(p)
        torch._foreach_copy_(flat.views["gradients"], [p.grad for p in flat.parameters])
        group = max(self.param_groups, key=lambda g: g["weight_decay"])
        raw = _library.adamw_settings(lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
                                      weight_decay=group["weight_decay"], step=flat.step + 1)
        flat.step += 1
        settings = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        if flat.device.type == "cuda":
            settings = settings.pin_memory().to(flat.device, non_blocking=True)
        torch.ops.stepscope.adamw(flat.values, flat.m, flat.v, flat.gradients, flat.rounded, settings, flat.clip_scale, flat.decayed,
                                  "all_tensors")
        torch.autograd.graph.increment_version(flat.parameters)
        flat.versions = [p._version for p in flat.parameters]
    return loss


# torch.optim hooks the step of a class when its first instance is made; _Taken makes none. Without it hooks on steps are not called.
_hooked_step = torch.optim.Optimizer.profile_hook_step(torch.no_grad()(_step))


def _step_by_class(self, *arguments, **named):
    # A scheduler made after take_over() calls this by its name, also when the optimizer was given back.
    return (_hooked_step if type(self) is _Taken else torch.optim.AdamW.step)(self, *arguments, **named)


_step_by_class.hooked = True


class _Taken(torch.optim.AdamW):
    """torch.optim.AdamW after take_over()."""

    _stepscope_was = torch.optim.AdamW

    step = _step_by_class
    # GradScaler leaves dividing and skipping to a fused step of PyTorch's, which says so by this name on the instance.
    _step_supports_amp_scaling = property(lambda self: False)

    def _init_group(self, *arguments, **named):  # PyTorch's own step begins with it
        raise Refused("adamw: a step of this optimizer that was kept from before the replacement was called; take optimizer.step again")

    def state_dict(self):
        self.state.update(self._stepscope_flat.state(self.param_groups))
        return super().state_dict()

    def __reduce_ex__(self, protocol):
        """A copy or a pickle is a torch.optim.AdamW: the flat vector belongs to the parameters of this one."""
        # Protocol 2 and later insist on the class of the object; 1 names the class to make as it is told.
        made, arguments, state = super().__reduce_ex__(1)
        flat = self._stepscope_flat
        state = {**state, "state": flat.state(self.param_groups, flat.dtype, copy=True)}  # pickle writes all of the memory below a view
        return made, tuple(torch.optim.AdamW if a is _Taken else a for a in arguments), state

    def load_state_dict(self, state_dict):
        before, flat, loaded = self.state_dict(), self._stepscope_flat, []
        handle = self.register_load_state_dict_pre_hook(lambda _, state_dict: loaded.append(state_dict))  # behind the hooks that may change it
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        if len(_steps_taken(self, flat.parameters)) > 1:
            super().load_state_dict(before)
            raise Refused("adamw: the loaded state is of parameters that took different numbers of steps, and the kernel has one number for "
                          "all; load it into PyTorch's: undo() of the report, and torch.optim.AdamW in place of stepscope.AdamW")
        flat.load(self, loaded[0])


def _is_of_scheduler(step):
    """Whether a step set on an optimizer is the one by which a scheduler of learning rates sees that the optimizer stepped."""
    return hasattr(step, "_wrapped_by_lr_sched") and getattr(step, "__wrapped__", None) in (torch.optim.AdamW.step, _Taken.step)


def _scheduled(optimizer):
    """The same for _Taken: the scheduler's own is bound to the step of the class that the optimizer had when the scheduler was made."""
    seen_by = weakref.ref(optimizer)

    @functools.wraps(_Taken.step)
    def step(*arguments, **named):
        optimizer = seen_by()
        optimizer._opt_called = True
        return _Taken.step(optimizer, *arguments, **named)

    step._wrapped_by_lr_sched = True
    return step


def _take(optimizer, before=None):
    optimizer._stepscope_flat = before if before is not None and before.goes_on(optimizer) else _Flat(optimizer)
    optimizer.__class__ = _Taken
    if "step" in vars(optimizer):
        optimizer.step = _scheduled(optimizer)


def _give_back(optimizer):
    flat = optimizer._stepscope_flat
    optimizer.state.update(flat.state(optimizer.param_groups, flat.dtype))
    del optimizer._stepscope_flat
    optimizer.__class__ = torch.optim.AdamW
    return flat


def take_over(optimizer, model=None):
    """Makes a torch.optim.AdamW step with stepscope's kernel, in place. Returns why it cannot (str), or a function: False gives it back to
    PyTorch with its state and returns the flat vectors, True takes it again. If somebody kept the vectors until then, the float32 masters and
    moments go on that nobody wrote meanwhile. model: refuses an optimizer that has none of its parameters."""
    why = _why_not(optimizer)
    if why:
        return why
    if model is not None and not {*map(id, model.parameters())} & {id(p) for g in optimizer.param_groups for p in g["params"]}:
        return "none of its parameters is the model's; give the optimizer that was made of this model's parameters"
    frozen = sum(not p.requires_grad and p.grad is None for g in optimizer.param_groups for p in g["params"])
    if frozen:  # asked here only: a user may freeze parameters for a while inside off()
        return (f"there are parameters that require no gradient among its own ({frozen}), and the kernel updates all of them; make it of the "
                "others (p for p in model.parameters() if p.requires_grad)")

    given_back = None  # a weak reference: PyTorch may have the optimizer for good, and the vectors are 16 bytes a parameter

    def swap(on):
        nonlocal given_back
        if not on:
            flat = _give_back(optimizer)
            given_back = weakref.ref(flat)
            return flat
        why = _why_not(optimizer)  # PyTorch stepped it meanwhile, and a user may have changed it
        if why:
            raise Refused(f"adamw: {why}")
        _take(optimizer, given_back())
        return None

    _take(optimizer)
    return swap


def AdamW(parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    """torch.optim.AdamW that steps with stepscope's kernel; raises Refused where it cannot. bfloat16 parameters get float32 masters."""
    optimizer = torch.optim.AdamW(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    result = take_over(optimizer)
    if isinstance(result, str):
        raise Refused(f"adamw: {result}")
    return optimizer
