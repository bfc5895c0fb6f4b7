"""Step time of the same GPT-2 in PyTorch, to compare with `stepscope train --trainer mixed`: bf16 autocast, scaled_dot_product_attention,
torch.compile, fused AdamW, gradient clipping; with --tf32 no autocast, but TF32 products, to compare with `--trainer fp32 --matmul tf32`.
Prints `step N X ms` lines, so that it can also be an arm of `stepscope experiment`.

usage: pytorch_step.py [--batch-size 4] [--steps 60] [--data tokens.bin] [--mode default|reduce-overhead] [--no-compile]
                       [--tf32]
"""
import argparse
import math
import statistics
import time

import numpy
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.attproj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.fc, self.fcproj = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.attproj(y)
        return x + self.fcproj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers=12, heads=12, channels=768, vocabulary=50304, positions=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, channels), nn.Embedding(positions, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.lnf = nn.LayerNorm(channels)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if "proj" in name else 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.lnf(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--batch-size", type=int, default=4)
    a.add_argument("--steps", type=int, default=60)
    a.add_argument("--data")
    a.add_argument("--mode", default="default")
    a.add_argument("--no-compile", action="store_true")
    a.add_argument("--tf32", action="store_true")
    o = a.parse_args()
    torch.set_float32_matmul_precision("high" if o.tf32 else "highest")
    torch.manual_seed(1)
    model = GPT2().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    step_model = model if o.no_compile else torch.compile(model, mode=o.mode)
    length = o.batch_size * 1024
    if o.data:
        tokens = numpy.memmap(o.data, dtype=numpy.uint16, offset=1024, mode="r").astype(numpy.int64)
    else:
        tokens = numpy.random.default_rng(1).integers(0, 50257, 40 * length)
    tokens = torch.from_numpy(tokens)
    batches = max(1, (len(tokens) - 1) // length)
    times = []
    end = time.perf_counter()
    for step in range(o.steps):
        at = step % batches * length
        x = tokens[at : at + length].view(o.batch_size, 1024).pin_memory().cuda(non_blocking=True)
        y = tokens[at + 1 : at + length + 1].view(o.batch_size, 1024).pin_memory().cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not o.tf32):
            loss = step_model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        now = time.perf_counter()
        times.append((now - end) * 1e3)
        end = now
        print(f"step {step + 1} {times[-1]:.3f} ms", flush=True)
    kept = times[len(times) // 3 :]
    print(f"median {statistics.median(kept):.3f} ms of {len(kept)} steps, loss {loss.item():.4f}, "
          f"peak {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")


main()
