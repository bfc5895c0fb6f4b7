"""Ranges of a program that torch.compile compiled by Inductor, which calls no module hooks: the compiled program switches the leaf itself.

A pass over the graph of forward and backward gives every node the leaf of the module that it came from (Dynamo and AOTAutograd keep both
in the node's metadata), and Inductor's wrapper gets one line `leaf(...)` in front of each kernel. A kernel fused from several ops belongs
to the op that most of its nodes came from. Only installed in a process that the collector listens to; the lines cost a call each.

Inductor has no interface for the lines, so one method of its wrapper is replaced (PyTorch 2.6 to 2.11 have it); where it is missing,
compiled kernels keep the range that was open around the compiled call."""
import collections
import re

import torch

_KEY = "stepscope"
_cursor = None  # the open profile() block's, one at a time


def follow(cursor):
    """leaf() switches this cursor from now on; returns the one before it."""
    global _cursor
    before, _cursor = _cursor, cursor
    return before


def leaf(name):
    """Called by compiled programs in front of a kernel. What the backward computes again of the forward is the backward's work."""
    if _cursor is not None:
        _cursor.set(_backward(name) if torch._C._current_graph_task_id() != -1 else name)


# ---- which node is which op -------------------------------------------------------------------------------------------


def _module_path(stack):
    """transformer.h.0.attn of the metadata of a node inside L['self'].transformer.h['0'].attn."""
    if not stack:
        return ""
    path = list(stack.values())[-1][0]
    path = re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", path).replace("L.self", "").replace("._modules", "").replace("._orig_mod", "")
    return path.strip(".")


def _ancestors(path):
    parts = path.split(".")
    return [".".join(parts[:i]) for i in range(len(parts), 0, -1)]


def _forward_leaves(nodes, leaves_of, loss):
    """{node: leaf} by the rules of the module hooks: a leaf while a module runs, and one after it."""
    found, now, inside = {}, None, ""
    for node in nodes:
        path = _module_path(node.meta.get("nn_module_stack"))
        if path != inside:
            for left in _ancestors(inside):
                if left and not (path + ".").startswith(left + "."):
                    after = leaves_of(left)
                    now = after[1] if after and after[1] else now
            inside = path
        here = next((leaves[0] for p in _ancestors(path) if p and (leaves := leaves_of(p)) and leaves[0]), None)
        found[node] = here or now or ("encoder/-/embedding" if not found else loss)
        now = here or now
    return found


def _backward(leaf_name):
    return "backward/" + leaf_name.split("/", 1)[1]


def label_graph(graph, leaves_of, loss):
    """Writes a leaf into the metadata of every node of a joint (or an inference) graph."""
    tangents = {n for n in graph.nodes if n.op == "placeholder" and "tangents" in n.name}
    later = set(tangents)
    forward, backward = [], []
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.meta.get("partitioner_tag") == "is_backward" or any(i in later for i in node.all_input_nodes):
            later.add(node)
            backward.append(node)
        else:
            forward.append(node)
    labels = _forward_leaves(forward, leaves_of, loss)
    by_sequence, stale = {}, max((n.meta.get("seq_nr") or 0 for n in forward), default=0)
    for node, name in labels.items():
        by_sequence.setdefault(node.meta.get("seq_nr"), name)
    # Sums of gradients of one tensor carry the last number of the forward, and so does the backward of an autograd.Function.
    by_sequence.pop(None, None)
    now = loss
    for node in backward:
        path = _module_path(node.meta.get("fwd_nn_module_stack") or node.meta.get("nn_module_stack"))
        own = leaves_of(path) if path else None
        number = node.meta.get("seq_nr")
        if own and own[0]:
            now = own[0]
        elif number in by_sequence and number < stale:
            now = by_sequence[number]
        labels[node] = _backward(now)
    for node, name in labels.items():
        node.meta[_KEY] = name
    return labels


# ---- the lines of the wrapper -------------------------------------------------------------------------------------------


def leaf_of_kernel(origins, one_op):
    """The leaf of most of these nodes, in their order, and of the last among equals; where the kernel is one op (a product, an op of a
    library): of the last, because the others are of arguments that it was found with."""
    names = [o.meta[_KEY] for o in origins if _KEY in o.meta]
    if not names:
        return None
    if one_op:
        return names[-1]
    counts = collections.Counter(names)
    most = max(counts.values())
    return next(n for n in reversed(names) if counts[n] == most)


def _patch_scheduler():
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.virtualized import V
    before = Scheduler.enter_context

    def enter_context(self, node):
        before(self, node)
        origins = {o for n in node.get_nodes() if n.node is not None for o in n.node.get_origins()}
        in_order = sorted(origins, key=self.origin_to_index.__getitem__)
        name, wrapper = leaf_of_kernel(in_order, node.is_extern() or node.is_template()), V.graph.wrapper_code
        if name is None or V.graph.cpp_wrapper:
            return
        if not getattr(wrapper, "_stepscope_imported", False):
            wrapper._stepscope_imported = True
            wrapper.imports.writeline("from stepscope._compiled import leaf as _stepscope_leaf")
        wrapper.writeline(f"_stepscope_leaf({name!r})")

    Scheduler.enter_context = enter_context


_installed = False


def install(leaves_of, loss):
    """Programs that Inductor compiles from now on carry leaves. Returns why not, or nothing."""
    global _installed
    if _installed:
        return None
    try:
        from torch._inductor import config
        from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
        if config.joint_custom_pre_pass is not None:
            return "torch._inductor.config.joint_custom_pre_pass is taken"
        _patch_scheduler()
    except (ImportError, AttributeError) as e:
        return f"this PyTorch's Inductor is not the one that was known: {e}"

    class Label(CustomGraphPass):
        def __call__(self, graph):
            label_graph(graph, leaves_of, loss)

        def uuid(self):
            return get_hash_for_files((__file__,))  # keeps programs with and without the lines apart in Inductor's caches

    config.joint_custom_pre_pass = Label()
    _installed = True
    return None
