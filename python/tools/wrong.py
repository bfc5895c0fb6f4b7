"""What the tools of this folder say of arguments and files with which they cannot run; they exit with 2 then."""


class Wrong(Exception):
    """An argument or a file is; the sentence says which and what was expected."""


def refuse_out_and_device(flags):
    import torch  # not for tools that only read files
    if flags.out and not flags.out.is_dir():
        raise Wrong(f"--out {flags.out}: no such folder; make it before")
    if flags.device == "cuda" and not torch.cuda.is_available():
        raise Wrong("--device cuda: PyTorch sees no CUDA device")
