"""Tables for terminals: columns as wide as their widest cell, numbers to the right."""


def table(columns, rows):
    """`columns`: titles; `rows`: tuples of str or numbers that are already text."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max([len(title)] + [len(row[i]) for row in cells]) for i, title in enumerate(columns)]
    numeric = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(columns))]

    def line(row):
        return "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric)).rstrip()

    return "\n".join([line(columns), "  ".join("-" * w for w in widths)] + [line(row) for row in cells])


def _is_number(text):
    return not text or text[0] in "+-.0123456789" or text in ("nan", "inf")


def number(x):
    return f"{x:.3g}" if x == x else "nan"
