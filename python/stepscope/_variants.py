"""Which slots of `stepscope train --list-variants` stand alone, and how a user names them."""
from ._errors import Refused

# By storage: fp32 has no cuDNN and no hopper, mixed has no unfused_causal_blocks. The library's own list is compared with this by a test.
ALONE = {
    "layernorm_forward": ["warp_per_row", "block_per_row"],
    "layernorm_backward": ["fused_rows", "separate_columns"],
    "gelu_forward": ["kernel"],
    "gelu_backward": ["kernel"],
    "attention_forward": ["flash", "cudnn", "hopper", "unfused", "unfused_causal_blocks"],
    "attention_backward": ["flash", "cudnn", "cudnn_deterministic", "hopper", "unfused", "unfused_causal_blocks"],
    "classifier": ["kept_sum", "one_read", "two_pass"],
    "adamw": ["all_tensors"],
}

# What a user writes for an op: its slots.
OPS = {
    "layernorm": ("layernorm_forward", "layernorm_backward"),
    "gelu": ("gelu_forward", "gelu_backward"),
    "attention": ("attention_forward", "attention_backward"),
    "loss": ("classifier",),
    "adamw": ("adamw",),
}

# What replace() leaves to Inductor in a program that torch.compile compiles, and why. The figures are sums over one step of GPT-2 124M
# (H200, B=16 T=1024), of python/measured/profile_compiled.json and profile_compiled_all.json; a test compares them.
LEFT_TO_INDUCTOR = {
    "layernorm": "left to torch.compile, which fuses it with the sums around it: 3.06 ms a step so, 3.68 replaced; layernorm=True replaces it",
    "loss": "left to torch.compile, which fuses it with the padding of lm_head's products: 9.82 ms a step with them so, 11.90 replaced; "
            "loss=True replaces it",
}

NOT_ALONE = {
    "linear_forward": "it is the bias of a matrix product, and products stay PyTorch's",
    "residual": "the sum is fused with the layernorm after it, which a PyTorch module does not own",
    "lm_head": "it is a matrix product with the loss around it, and products stay PyTorch's",
    "residual_stream": "it is the storage of the trainer's own activations",
    "residual_gradient": "it is the storage of the trainer's own gradients",
    "bias_gradient": "it is part of another op's backward pass",
    "zero_grad": "it is how the trainer begins a step",
    "step_launch": "it is how the trainer launches a step; use torch.cuda.graph",
    "matmul_algorithm": "it chooses among cuBLASLt's algorithms, and products stay PyTorch's",
}
NOT_ALONE_VARIANTS = {
    ("gelu_forward", "matmul_epilogue"): "the product in front of the GELU computes it; alone it is gelu=kernel",
    ("gelu_backward", "matmul_epilogue"): "the product behind the GELU computes it; alone it is gelu=kernel",
    ("gelu_forward", "hopper"): "the product in front of the GELU makes it and keeps its gradient; alone it is gelu=kernel",
    ("gelu_backward", "hopper"): "the product behind the GELU multiplies by the gradient that was kept; alone it is gelu=kernel",
    ("adamw", "per_tensor"): "it launches once for each of GPT-2's 16 tensors, and PyTorch has its own; use all_tensors",
}


def refuse_variant(slot, name):
    why = NOT_ALONE_VARIANTS.get((slot, name))
    if why:
        raise Refused(f"{slot}={name} does not stand alone: {why}")
    raise Refused(f"{slot} has no variant {name!r}; it has {', '.join(ALONE[slot])}")


def _one_op(op, asked):
    """{slot: variant} for op=asked; asked is a name, several joined by '+', or True for the defaults. None is a default that a call finds."""
    slots = OPS[op]
    chosen = {}
    for name in [] if asked is True else str(asked).split("+"):
        fits = [s for s in slots if name in ALONE[s]]
        if not fits:
            refuse_variant(slots[0], name)
        for slot in fits:
            if slot in chosen and chosen[slot] != name:
                raise Refused(f"{op}={asked} names {slot} twice")
            chosen[slot] = name
    # cudnn_deterministic is a backward; a forward of the same library belongs to it.
    if chosen.get("attention_backward") == "cudnn_deterministic":
        chosen.setdefault("attention_forward", "cudnn")
    # Attention's default depends on the tensors' type, which only a call knows.
    return {s: chosen.get(s, None if op == "attention" else ALONE[s][0]) for s in slots}


def _own(op, kernel):
    """A kernel made by stepscope.op for this op; others were never compared with anything."""
    if op == "adamw":
        raise Refused("adamw takes no kernel of its own; there is adamw=True")
    kind = getattr(kernel, "kind", None)
    if kind is None:
        raise Refused(f"{op} is given {getattr(kernel, '__name__', type(kernel).__name__)}, which no check has seen; make it with "
                      f"@stepscope.op({op!r})")
    if kind != op:
        raise Refused(f"{op} is given {kernel!r}, which is a kernel for {kind}")
    return kernel


def refuse_unknown(asked):
    """Refuses keywords of replace() that name nothing, whatever they are set to: a misspelt op=False would leave the op replaced."""
    for key, value in asked.items():
        if key in OPS:
            continue
        if key in NOT_ALONE:
            raise Refused(f"{key} does not stand alone: {NOT_ALONE[key]}")
        op = next((o for o, slots in OPS.items() if key in slots), None)
        if op is None:
            raise Refused(f"{key!r} is no op; ops are {', '.join(OPS)}, slots are {', '.join(ALONE)}")
        if value is False:
            raise Refused(f"{key}=False: a slot takes a variant; {op}=False leaves the whole op to PyTorch")


def choose(asked):
    """{op: {slot: variant} | callable} for the keywords of replace(). Ops and slots of the table are taken; others are refused."""
    refuse_unknown(asked)
    chosen = {}
    for key, value in asked.items():
        if value is None or value is False:
            continue
        if key in OPS:
            chosen[key] = _own(key, value) if callable(value) else _one_op(key, value)
    for key, value in asked.items():
        if value is None or value is False or key in OPS:
            continue
        op = next(o for o, slots in OPS.items() if key in slots)
        if value not in ALONE[key]:
            refuse_variant(key, value)
        slots = chosen.setdefault(op, _one_op(op, True))
        if callable(slots):
            raise Refused(f"{op} is given a kernel of its own, so {key}={value} has nothing to choose")
        slots[key] = value
    return chosen
