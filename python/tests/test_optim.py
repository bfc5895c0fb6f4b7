"""AdamW taken over: layout, refusals, state. On the CPU, with a fake kernel that knows the settings by their place in memory; where
the library is missing they are made here as well."""
import copy
import ctypes
import functools
import pickle
import struct
import weakref

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import stepscope
from stepscope import _library, optim


class Settings(ctypes.Structure):
    # gpt2/ops/step_scalars.h, as far as the update reads it.
    _fields_ = [("loss_scale", ctypes.c_double)] + [(n, ctypes.c_float) for n in (
        "gradient_scale", "lr", "beta1", "beta2", "one_minus_beta1", "one_minus_beta2", "correction1", "correction2", "eps", "weight_decay")]


def fake_settings(lr, beta1, beta2, eps, weight_decay, step):
    return bytes(Settings(1, 1, lr, beta1, beta2, 1 - beta1, 1 - beta2, 1 - beta1**step, 1 - beta2**step, eps, weight_decay))


def fake_adamw(p, m, v, g, rounded, settings, clip_scale, decayed, variant):
    s = Settings.from_buffer_copy(bytes(settings.tolist()))
    g = g * clip_scale
    m.mul_(s.beta1).add_(g, alpha=s.one_minus_beta1)
    v.mul_(s.beta2).addcmul_(g, g, value=s.one_minus_beta2)
    direction = (m / s.correction1) / ((v / s.correction2).sqrt() + s.eps)
    direction[:decayed] += s.weight_decay * p[:decayed]
    p.sub_(direction, alpha=s.lr)
    if rounded.numel():
        rounded.copy_(p)


@pytest.fixture(scope="module", autouse=True)
def kernel():
    from stepscope._ops import LIBRARY
    LIBRARY.impl("adamw", fake_adamw, "CPU")
    with pytest.MonkeyPatch.context() as patch:
        if stepscope.why_missing():
            patch.setattr(_library, "adamw_settings", fake_settings)
        yield


def model(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3)).to(dtype)


def groups(net):
    return [{"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in net.parameters() if p.dim() == 1], "weight_decay": 0.0}]


def train(net, optimizer, steps, start=0):
    for i in range(start, start + steps):
        generator = torch.Generator().manual_seed(i)
        optimizer.zero_grad()
        net(torch.randn(4, 5, generator=generator).to(next(net.parameters()).dtype)).square().sum().backward()
        optimizer.step()


def pair(dtype=torch.float32, **settings):
    """(model, optimizer) of PyTorch, and the same taken over with its report."""
    a, b = model(dtype), model(dtype)
    own, ours = (torch.optim.AdamW(groups(net), lr=1e-2, **settings) for net in (a, b))
    report = stepscope.replace(b, optimizer=ours, adamw=True)
    assert report.replaced
    return a, own, b, ours, report


def same(a, b, rtol=1e-5, atol=1e-6):
    for p, q in zip(a.parameters(), b.parameters()):
        torch.testing.assert_close(q, p, rtol=rtol, atol=atol)


def vectors(optimizer):
    flat = optimizer._stepscope_flat
    return [v.clone() for v in (flat.values, flat.m, flat.v)]


def test_steps_are_those_of_pytorch():
    a, b = model(), model()
    own = torch.optim.AdamW(groups(a), lr=1e-2, betas=(0.8, 0.95))
    ours = torch.optim.AdamW(groups(b), lr=1e-2, betas=(0.8, 0.95))
    assert callable(optim.take_over(ours))
    scheduler = [torch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (own, ours)]
    for i in range(6):
        train(a, own, 1, i), train(b, ours, 1, i)
        for s in scheduler:
            s.step()
    for p, q in zip(a.parameters(), b.parameters()):
        torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6)


def test_state_goes_over_and_back():
    a, b = model(), model()
    own, ours = torch.optim.AdamW(groups(a), lr=1e-2), torch.optim.AdamW(groups(b), lr=1e-2)
    train(a, own, 6)
    train(b, ours, 2)
    swap = optim.take_over(ours)  # with state of two steps
    train(b, ours, 2, 2)
    swap(False)
    assert type(ours) is torch.optim.AdamW
    train(b, ours, 2, 4)
    for p, q in zip(a.parameters(), b.parameters()):
        torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6)


def test_a_state_dict_resumes():
    b = model()
    ours = stepscope.AdamW(groups(b), lr=1e-2)
    train(b, ours, 3)
    saved, weights = {"o": ours.state_dict()}, {k: v.clone() for k, v in b.state_dict().items()}
    c = model()
    again = stepscope.AdamW(groups(c), lr=1e-2)
    c.load_state_dict(weights)
    again.load_state_dict(copy.deepcopy(saved["o"]))
    train(b, ours, 2, 3)
    train(c, again, 2, 3)
    for p, q in zip(b.parameters(), c.parameters()):
        assert torch.equal(p, q)


def test_a_state_dict_has_the_whole_moments_of_bfloat16_parameters():
    b, c = model(torch.bfloat16), model(torch.bfloat16)
    ours, again = stepscope.AdamW(groups(b), lr=1e-2), stepscope.AdamW(groups(c), lr=1e-2)
    train(b, ours, 3)
    before = vectors(ours)
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    ours.load_state_dict(ours.state_dict())
    assert all(map(torch.equal, vectors(ours), before))
    assert all(map(torch.equal, vectors(again)[1:], before[1:]))  # the masters are in no state_dict
    assert any(not torch.equal(m, m.bfloat16().float()) for m in before[1:])


@pytest.mark.parametrize("when", ["pre", "post"])
def test_moments_that_a_hook_changes_while_they_are_loaded_are_the_ones_that_count(when):
    ours = pair(torch.bfloat16)[3]
    state = ours.state_dict()
    for s in state["state"].values():
        s["exp_avg"] = torch.full_like(s["exp_avg"], 1.0)

    def halved(states):
        return {k: {**s, "exp_avg": s["exp_avg"] / 2} for k, s in states.items()}

    if when == "pre":
        ours.register_load_state_dict_pre_hook(lambda _, given: {**given, "state": halved(given["state"])})
    else:
        ours.register_load_state_dict_post_hook(lambda optimizer: optimizer.state.update(halved(optimizer.state)))
    ours.load_state_dict(state)
    assert all((m == 0.5).all() for m in ours._stepscope_flat.views["m"])


def test_bfloat16_parameters_follow_float32_masters():
    net = model(torch.bfloat16)
    ours = stepscope.AdamW(groups(net), lr=1e-4)
    train(net, ours, 20)
    flat = ours._stepscope_flat
    for p, master in zip(flat.parameters, flat.views["values"]):
        assert torch.equal(p, master.bfloat16()) and not torch.equal(p.float(), master)


class Elsewhere(torch.Tensor):
    """As DTensor, the parameters of fully_shard: a tensor whose numbers are not where its shape says."""

    @property
    def data(self):
        return self.as_subclass(Elsewhere)


@pytest.mark.parametrize("make, sentence", [
    (lambda p: torch.optim.SGD(p, 0.1), "SGD, not torch.optim.AdamW"),
    (lambda p: torch.optim.AdamW(p, amsgrad=True), "amsgrad"),
    (lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1)), "tensor; give a float"),
    (lambda p: torch.optim.AdamW([{"params": [next(p)], "lr": 1e-3}, {"params": list(p)}], lr=1e-2), "differ in lr"),
    (lambda p: torch.optim.AdamW([{"params": [next(p)], "weight_decay": 0.1}, {"params": list(p)}], weight_decay=0.2), "more than one weight"),
    (lambda p: torch.optim.AdamW((first := next(p), first, *p)), "more than once"),
    (lambda p: stepscope.AdamW(p), "it steps with the kernel already"),
    (lambda p: torch.optim.AdamW((next(p).requires_grad_(False), *p)), "parameters that require no gradient among its own (1)"),
    (lambda p: torch.optim.AdamW((*p, torch.nn.Parameter(Elsewhere(torch.ones(3))))), "its parameters are Elsewhere, Tensor, which cannot lie in one"),
])
def test_what_the_kernel_cannot_step_is_listed(make, sentence):
    net = model()
    report = stepscope.replace(net, optimizer=make(net.parameters()), adamw=True)
    assert sentence in report.not_replaced[0].why


def test_a_missing_gradient_and_moved_parameters_are_refused():
    net = model()
    ours = stepscope.AdamW(net.parameters())
    with pytest.raises(stepscope.Refused, match="has no gradient"):
        ours.step()
    train(net, ours, 1)
    net[0].weight.data = net[0].weight.data.clone()
    with pytest.raises(stepscope.Refused, match="other memory"):
        train(net, ours, 1)


def test_adamw_without_an_optimizer_is_listed():
    report = stepscope.replace(model(), adamw=True)
    assert "no optimizer was given" in report.not_replaced[0].why


@pytest.mark.skipif(stepscope.why_missing() is not None, reason=f"{stepscope.why_missing()}")
def test_bad_settings_are_refused_by_the_library():
    with pytest.raises(stepscope.Refused, match="step is 0"):
        _library.adamw_settings(lr=1, beta1=0.9, beta2=0.9, eps=1e-8, weight_decay=0, step=0)
    raw = _library.adamw_settings(lr=0.5, beta1=0.9, beta2=0.9, eps=1e-8, weight_decay=0, step=1)
    assert struct.pack("f", 0.5) in raw


def test_hooks_on_steps_are_called_as_before():
    net = model()
    optimizer = torch.optim.AdamW(groups(net), lr=1e-3)
    stepscope.replace(net, optimizer=optimizer, adamw=True)
    seen = []
    handles = [register_optimizer_step_pre_hook(lambda *a: seen.append("before")),
               register_optimizer_step_post_hook(lambda *a: seen.append("after"))]
    try:
        train(net, optimizer, 1)
    finally:
        for h in handles:
            h.remove()
    assert seen == ["before", "after"]


def test_weights_written_after_the_take_over_count():
    a, own, b, ours, _ = pair(torch.bfloat16)
    train(a, own, 1), train(b, ours, 1)
    generator = torch.Generator().manual_seed(9)
    written = {k: torch.randn(v.shape, generator=generator) for k, v in a.state_dict().items()}
    for net, optimizer in ((a, own), (b, ours)):
        net.load_state_dict(written)
        train(net, optimizer, 1, 1)
        with torch.no_grad():
            net[2].weight.clamp_(-0.1, 0.1)
        train(net, optimizer, 1, 2)
    same(a, b, rtol=0.02, atol=1e-3)
    assert b[2].weight.abs().max() < 0.15


def test_masters_stay_where_nothing_was_written():
    net = model(torch.bfloat16)
    ours = stepscope.AdamW(groups(net), lr=1e-6)  # steps too small for bfloat16
    train(net, ours, 4)
    net.to("cpu").state_dict()
    masters = ours._stepscope_flat.views["values"]
    apart = [(p.float() - q).abs().max().item() for p, q in zip(ours._stepscope_flat.parameters, masters)]
    train(net, ours, 1, 4)
    assert all((p.float() - q).abs().max() > d / 2 > 0 for p, q, d in zip(ours._stepscope_flat.parameters, masters, apart))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masters_and_moments_outlive_off(dtype):
    a, _, b, ours, report = pair(dtype)
    train(b, ours, 3)
    before = vectors(ours)
    with report.off():
        assert type(ours) is torch.optim.AdamW
        b(torch.zeros(4, 5, dtype=dtype))
    assert type(ours) is not torch.optim.AdamW and all(map(torch.equal, vectors(ours), before))
    train(b, ours, 1, 3)
    assert ours.state_dict()["state"][0]["step"] == 4


def test_what_was_written_inside_off_counts_and_the_rest_goes_on():
    _, _, b, ours, report = pair(torch.bfloat16)
    train(b, ours, 3)
    weight, bias = b[0].weight, b[0].bias
    flat = ours._stepscope_flat
    place = {p: i for i, p in enumerate(flat.parameters)}
    before = {name: [v.clone() for v in flat.views[name]] for name in ("values", "m", "v")}
    with report.off():
        weight.data.mul_(2)  # no version tells of it
        ours.state[bias]["exp_avg"].zero_()
    flat = ours._stepscope_flat
    assert torch.equal(flat.views["values"][place[weight]], weight.float()) and not flat.views["m"][place[bias]].any()
    for name, written in (("values", weight), ("m", bias), ("v", None)):
        for p, i in place.items():
            assert p is written or torch.equal(flat.views[name][i], before[name][i]), name


def test_steps_of_pytorch_inside_off_begin_masters_and_moments_anew():
    _, _, b, ours, report = pair(torch.bfloat16)
    train(b, ours, 3)
    with report.off():
        train(b, ours, 1, 3)
        state = {p: {k: v.clone() for k, v in s.items()} for p, s in ours.state.items()}
    flat = ours._stepscope_flat
    assert flat.step == 4
    for i, p in enumerate(flat.parameters):
        assert torch.equal(flat.views["values"][i], p.float())
        assert torch.equal(flat.views["m"][i], state[p]["exp_avg"].float()) and torch.equal(flat.views["v"][i], state[p]["exp_avg_sq"].float())


def test_undo_lets_go_of_the_flat_vectors():
    _, _, b, ours, report = pair(torch.bfloat16)
    train(b, ours, 1)
    flat = weakref.ref(ours._stepscope_flat)
    report.undo()
    assert flat() is None
    report.redo()
    train(b, ours, 1, 1)


@pytest.fixture
def kernel_steps(monkeypatch):
    """The optimizers that stepped by the kernel, one entry a step."""
    steps, step = [], torch.ops.stepscope.adamw
    monkeypatch.setattr(torch.ops.stepscope, "adamw", lambda *arguments: (steps.append(1), step(*arguments))[1])
    return steps


@pytest.mark.parametrize("made", ["before", "after"])
def test_a_scheduler_of_learning_rates_may_be_made_before_or_after(made, kernel_steps, recwarn):
    a, b = model(), model()
    own, ours = torch.optim.AdamW(groups(a), lr=1e-2), torch.optim.AdamW(groups(b), lr=1e-2)
    schedulers, report = [], None
    for what in ("scheduler", "replace") if made == "before" else ("replace", "scheduler"):
        if what == "replace":
            report = stepscope.replace(b, optimizer=ours, adamw=True)
        else:
            schedulers = [torch.optim.lr_scheduler.LambdaLR(o, lambda i: 1 / (i + 1)) for o in (own, ours)]
    assert report.replaced

    def both(start):
        for i in range(start, start + 2):
            train(a, own, 1, i), train(b, ours, 1, i)
            for s in schedulers:
                s.step()

    both(0)
    assert len(kernel_steps) == 2 and ours.state_dict()["state"][0]["step"] == 2
    report.undo()
    both(2)
    assert len(kernel_steps) == 2 and ours.state_dict()["state"][0]["step"] == 4
    report.redo()
    both(4)
    assert len(kernel_steps) == 4 and ours.state_dict()["state"][0]["step"] == 6
    same(a, b)
    assert not [w for w in recwarn if "scheduler" in str(w.message)]


def test_a_step_of_the_users_own_is_refused():
    net = model()
    optimizer = torch.optim.AdamW(groups(net))
    own, report = optimizer.step, stepscope.replace(net, optimizer=optimizer, adamw=True)
    train(net, optimizer, 1)
    with pytest.raises(stepscope.Refused, match="kept from before"):
        own()
    report.undo()
    optimizer.step = lambda *arguments: own(*arguments)
    with pytest.raises(stepscope.Refused, match="set on the instance"):
        report.redo()
    report = stepscope.replace(net, optimizer=optimizer, adamw=True)
    assert "set on the instance" in report.not_replaced[0].why
    del optimizer.step
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    own = optimizer.step
    optimizer.step = functools.wraps(own)(lambda *arguments: own(*arguments))  # around the scheduler's
    report = stepscope.replace(net, optimizer=optimizer, adamw=True)
    assert "set on the instance" in report.not_replaced[0].why


def with_other_rates(optimizer):
    state = optimizer.state_dict()
    state["param_groups"][1]["lr"] = 1.0
    optimizer.load_state_dict(state)


def with_a_new_group(optimizer):
    torch.manual_seed(4)
    added = torch.nn.Parameter(torch.randn(3))
    added.grad = torch.ones(3)
    optimizer.add_param_group({"params": [added], "weight_decay": 0.1})


@pytest.mark.parametrize("change, sentence", [
    (lambda o: o.param_groups[1].update(lr=0.0), "groups differ in lr"),
    (with_other_rates, "groups differ in lr"),
    (lambda o: o.param_groups[1].update(weight_decay=5.0), "more than one weight decay"),
    (lambda o: o.param_groups[1].update(weight_decay=0.1), "weight decay is on other parameters"),
    (lambda o: [g.update(maximize=True) for g in o.param_groups], "maximize=True"),
    (lambda o: [g.update(amsgrad=True) for g in o.param_groups], "amsgrad=True"),
    (with_a_new_group, "its parameters are others"),
])
def test_groups_that_were_changed_are_refused(change, sentence):
    a, own, b, ours, report = pair()
    train(a, own, 1), train(b, ours, 1)
    before = [p.clone() for p in b.parameters()]
    change(own), change(ours)
    with pytest.raises(stepscope.Refused, match=rf"(?s){sentence}.*undo\(\)"):
        train(b, ours, 1, 1)
    assert all(torch.equal(p, q) for p, q in zip(before, b.parameters()))
    report.undo()
    if sentence != "amsgrad=True":  # PyTorch's own step has no state for it
        train(a, own, 2, 1), train(b, ours, 2, 1)
        same(a, b)


def test_groups_may_change_where_the_kernel_can_follow():
    a, own, b, ours, _ = pair()
    for i, change in enumerate([{"lr": 0.02}, {"betas": (0.8, 0.9), "eps": 1e-3}, {"weight_decay": 0.0}]):
        for optimizer in (own, ours):
            [g.update(change) for g in optimizer.param_groups]
        train(a, own, 2, 2 * i), train(b, ours, 2, 2 * i)
    for optimizer in (own, ours):
        optimizer.param_groups[0]["weight_decay"] = 3.0
    train(a, own, 1, 6), train(b, ours, 1, 6)
    same(a, b)


def test_a_loaded_state_without_steps_begins_anew():
    a, own, b, ours, _ = pair()
    fresh = torch.optim.AdamW(groups(model()), lr=1e-2).state_dict()
    train(a, own, 5), train(b, ours, 5)
    own.load_state_dict(fresh), ours.load_state_dict(fresh)
    train(a, own, 3, 5), train(b, ours, 3, 5)
    same(a, b)
    assert ours.state_dict()["state"][0]["step"] == 3


def test_parameters_of_different_numbers_of_steps_are_refused():
    a, own, b, ours, report = pair()
    train(b, ours, 2)
    partly = copy.deepcopy(ours.state_dict())
    del partly["state"][3]
    for group in partly["param_groups"]:
        group["lr"] = 0.5
    with pytest.raises(stepscope.Refused, match=r"different numbers of steps.*undo\(\)"):
        ours.load_state_dict(partly)
    assert ours.param_groups[0]["lr"] != 0.5 and ours.state_dict()["state"][3]["step"] == 2, "a refused state changes nothing"
    own.load_state_dict(partly)
    assert "different numbers of steps" in stepscope.replace(a, optimizer=own, adamw=True).not_replaced[0].why


def test_groups_without_parameters_are_no_obstacle():
    net = model()
    ours = torch.optim.AdamW([{"params": []}, {"params": list(net.parameters())}], lr=1e-2)
    assert stepscope.replace(net, optimizer=ours, adamw=True).replaced
    train(net, ours, 1)


def pickled(everything):
    return pickle.loads(pickle.dumps(everything))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_copy_is_an_optimizer_of_pytorch(copied, dtype):
    a, own, b, ours, _ = pair(dtype)
    train(a, own, 2), train(b, ours, 2)
    c, other = copied((b, ours))
    assert type(other) is torch.optim.AdamW and type(ours) is not torch.optim.AdamW
    assert other.state_dict()["state"][0]["step"] == 2
    for net, optimizer in ((a, own), (b, ours), (c, other)):
        train(net, optimizer, 2, 2)
    tolerance = {} if dtype == torch.float32 else {"rtol": 0.05, "atol": 5e-3}
    same(a, b, **tolerance), same(a, c, **tolerance)


def test_a_plain_pickle_needs_no_stepscope():
    ours = pair()[3]
    assert b"stepscope" not in pickle.dumps(ours)


def test_the_optimizer_of_another_model_is_refused():
    optimizer = torch.optim.AdamW(model().parameters())
    report = stepscope.replace(model(), optimizer=optimizer, adamw=True)
    assert "none of its parameters is the model's" in report.not_replaced[0].why
    assert type(optimizer) is torch.optim.AdamW


def test_a_scaler_of_losses_unscales_and_skips_as_with_a_fused_step():
    a, own, b, ours, report = pair(fused=True)
    for net, optimizer in ((a, own), (b, ours)):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        for i in range(4):
            optimizer.zero_grad()
            loss = net(torch.randn(4, 5, generator=torch.Generator().manual_seed(i))).square().sum()
            scaler.scale(loss * (float("inf") if i == 2 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
    same(a, b)
    report.undo()
    assert ours._step_supports_amp_scaling
