"""What PyTorch's bf16 autocast loses on a GPT-2, beside which `stepscope gate --trainer mixed` can be read.

Makes a model (GPT-2's initialization, vectors moved off 0 and 1), computes loss, logits and gradients of one random batch in fp64, writes
both as llm.c files, computes the same under torch.autocast(bfloat16) from the same fp32 weights, and prints each gradient tensor's relative
L2 error and cosine as JSON.

usage: autocast_error.py OUT_PREFIX [--layers 12 --heads 12 --channels 768 --vocabulary 50257 --padded 50304 --positions 1024]
                         [--batch-size 4] [--seq-len 64] [--seed 1]
then:  stepscope gate --trainer mixed --checkpoint OUT_PREFIX.bin --state OUT_PREFIX_state.bin --verbose
"""
import argparse
import json
import math

import numpy as np
import torch
from torch.nn import functional as F

TENSORS = ["wte", "wpe", "ln1w", "ln1b", "qkvw", "qkvb", "attprojw", "attprojb", "ln2w", "ln2b", "fcw", "fcb", "fcprojw", "fcprojb",
           "lnfw", "lnfb"]


def parameters(o):
    generator = torch.Generator().manual_seed(o.seed)
    L, C = o.layers, o.channels

    def normal(*shape, std=0.02):
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * std

    projection = 0.02 / math.sqrt(2 * L)
    wte = torch.zeros(o.padded, C, dtype=torch.float64)
    wte[: o.vocabulary] = normal(o.vocabulary, C)
    p = {"wte": wte, "wpe": normal(o.positions, C)}
    for name, shape, std in [("ln1w", (C,), 0), ("ln1b", (C,), 0), ("qkvw", (3 * C, C), 0.02), ("qkvb", (3 * C,), 0),
                             ("attprojw", (C, C), projection), ("attprojb", (C,), 0), ("ln2w", (C,), 0), ("ln2b", (C,), 0),
                             ("fcw", (4 * C, C), 0.02), ("fcb", (4 * C,), 0), ("fcprojw", (C, 4 * C), projection), ("fcprojb", (C,), 0)]:
        p[name] = normal(L, *shape, std=std or 0.05) + (1 if name.startswith("ln") and name.endswith("w") else 0)
    p["lnfw"], p["lnfb"] = 1 + normal(C, std=0.05), normal(C, std=0.05)
    return {k: v.float().double() for k, v in p.items()}


def forward(p, x, y, o):
    C, V = o.channels, o.vocabulary
    B, T = x.shape
    h = F.embedding(x, p["wte"]) + p["wpe"][:T]
    for l in range(o.layers):
        n = F.layer_norm(h, (C,), p["ln1w"][l], p["ln1b"][l])
        q, k, v = (s.view(B, T, o.heads, C // o.heads).transpose(1, 2) for s in F.linear(n, p["qkvw"][l], p["qkvb"][l]).split(C, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        h = h + F.linear(a, p["attprojw"][l], p["attprojb"][l])
        n = F.layer_norm(h, (C,), p["ln2w"][l], p["ln2b"][l])
        h = h + F.linear(F.gelu(F.linear(n, p["fcw"][l], p["fcb"][l]), approximate="tanh"), p["fcprojw"][l], p["fcprojb"][l])
    logits = F.linear(F.layer_norm(h, (C,), p["lnfw"], p["lnfb"]), p["wte"])[..., :V]
    return logits, F.cross_entropy(logits.reshape(-1, V), y.reshape(-1))


def run(values, x, y, o, dtype, autocast):
    p = {k: v.to("cuda", dtype).requires_grad_() for k, v in values.items()}
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
        logits, loss = forward(p, x, y, o)
    loss.backward()
    return logits.detach().double(), loss.item(), {k: v.grad.double() for k, v in p.items()}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("prefix")
    for name, default in [("layers", 12), ("heads", 12), ("channels", 768), ("vocabulary", 50257), ("padded", 50304),
                          ("positions", 1024), ("batch-size", 4), ("seq-len", 64), ("seed", 1)]:
        a.add_argument(f"--{name}", type=int, default=default)
    o = a.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    values = parameters(o)
    rng = np.random.default_rng(o.seed)
    x, y = (torch.from_numpy(rng.integers(0, o.vocabulary, (o.batch_size, o.seq_len))).cuda() for _ in range(2))
    logits, loss, gradients = run(values, x, y, o, torch.float64, False)
    header = np.zeros(256, np.int32)
    header[:8] = [20240326, 3, o.positions, o.vocabulary, o.layers, o.heads, o.channels, o.padded]
    with open(o.prefix + ".bin", "wb") as f:
        f.write(header.tobytes())
        for name in TENSORS:
            f.write(values[name].float().numpy().tobytes())
    header = np.zeros(256, np.int32)
    header[:4] = [20240327, 2, o.batch_size, o.seq_len]
    with open(o.prefix + "_state.bin", "wb") as f:
        for part in [header, x.cpu().numpy().astype(np.int32), y.cpu().numpy().astype(np.int32), logits.float().cpu().numpy(),
                     np.float32(loss)]:
            f.write(part.tobytes())
        for name in TENSORS:
            f.write(gradients[name].float().cpu().numpy().tobytes())
    cast_logits, cast_loss, cast = run(values, x, y, o, torch.float32, True)

    def errors(got, want):
        return {"rel_l2": ((got - want).norm() / want.norm()).item(),
                "cosine": ((got * want).sum() / got.norm() / want.norm()).item()}

    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "loss_relative": abs(cast_loss / loss - 1),
                      "logits": errors(cast_logits, logits), "gradients": {k: errors(cast[k], gradients[k]) for k in TENSORS}}, indent=1))


main()
