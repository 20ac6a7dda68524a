# The last product and the loss by chunks of rows, so that logits never exist whole: what each chunk gives to the gradients is made with
# it, in the forward pass (src/pass/tile.c has the same for autosp's own executor).  Neighbours: ops.py (who calls it).
# SPDX-License-Identifier: Apache-2.0
import torch


def _chunk(x, w, bias, labels, ignore):
    """Sum of the losses of some rows, and d logits in the logits' place."""
    z = torch.nn.functional.linear(x, w, bias).to(torch.promote_types(x.dtype, torch.float32))
    counts = labels != ignore
    at = torch.where(counts, labels, 0)[:, None]
    z.sub_(z.amax(-1, keepdim=True))
    own = z.gather(1, at)
    total = z.exp_().sum(-1, keepdim=True)
    loss = torch.where(counts, (total.log() - own)[:, 0], 0).sum()
    z.div_(total).scatter_add_(1, at, torch.full_like(at, -1, dtype=z.dtype))
    return loss, z.mul_(counts[:, None])


@torch.library.custom_op("autosp::head_loss", mutates_args=())
def head_loss(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, labels: torch.Tensor, ignore: int, mean: bool, rows: int,
              train: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss and its gradients by x, w and bias; empty ones where none are wanted."""
    flat, labels = x.reshape(-1, x.shape[-1]), labels.reshape(-1)
    wide = torch.promote_types(x.dtype, torch.float32)
    near, shift = w.to(x.dtype), None if bias is None else bias.to(x.dtype)  # as autocast has them
    loss = torch.zeros((), dtype=wide, device=x.device)
    dx = torch.empty_like(flat) if train else x.new_empty(0)
    dw = torch.zeros_like(w, dtype=wide) if train else x.new_empty(0)
    db = torch.zeros_like(bias, dtype=wide) if train and bias is not None else x.new_empty(0)
    scale = 1 / (labels != ignore).sum().to(wide) if mean else None
    for i in range(0, len(flat), rows):
        part = flat[i:i + rows]
        one, z = _chunk(part, near, shift, labels[i:i + rows], ignore)
        loss += one
        if train:
            z = z if scale is None else z.mul_(scale)
            torch.mm(z.to(x.dtype), near, out=dx[i:i + rows])
            dw.addmm_(z.t(), part.to(wide))
        if train and bias is not None:
            db += z.sum(0)
        del z  # before the next rows have theirs
    return loss if scale is None else loss * scale, dx.view(x.shape) if train else dx, dw.to(w.dtype), db if bias is None or not train else db.to(bias.dtype)


@head_loss.register_fake
def _(x, w, bias, labels, ignore, mean, rows, train):
    none = lambda: x.new_empty(0)
    return (x.new_empty((), dtype=torch.promote_types(x.dtype, torch.float32)), torch.empty_like(x, memory_format=torch.contiguous_format)
            if train else none(), torch.empty_like(w) if train else none(), torch.empty_like(bias) if train and bias is not None else none())


def _keep(ctx, inputs, output):
    ctx.has_bias = inputs[2] is not None
    ctx.save_for_backward(*output[1:])


def _derivative(ctx, g, *_):
    dx, dw, db = ctx.saved_tensors
    scaled = lambda d: d * g.to(d.dtype)
    return scaled(dx), scaled(dw), scaled(db) if ctx.has_bias else None, None, None, None, None, None


head_loss.register_autograd(_derivative, setup_context=_keep)
