// Blocks of random programs that are text: what ops other than attention do with tokens, masks that
// a graph computes, and losses.  In a text $ is the number of the block and # the width of the
// stream.  Neighbours: random_program.h, random_int.h.  SPDX-License-Identifier: Apache-2.0
#include "property/support/random_int.h"

// %r$ : f64[B, S, #] from %n$.
static const char *const maps[] = {
    // along the tokens
    "%r$ : f64[B, S, #] = cumsum %n$ {dim = 1, reverse = true}\n",
    "%a$ : f64[B, S, #] = sigmoid %n$\n%bb$ : f64[B, S, #] = add_scalar %a$ {value = 0.5}\n"
    "%r$ : f64[B, S, #] = cumprod %bb$ {dim = 1}\n",
    "%a$ : f64[B, S, #] = sigmoid %n$\n"
    "%r$ : f64[B, S, #] = scan %a$, %n$ {dim = 1, reverse = true}\n",
    "%s$ : f64[B, S, 1] = slice %n$ {dim = 2, end = 1}\n%a$ : f64[B, S, 1] = sigmoid %s$\n"
    "%hs$ : f64[B, 1, #] = slice %n$ {dim = 1, end = 1}\n"
    "%r$ : f64[B, S, #] = scan %a$, %n$, %hs$ {dim = 1}\n",
    "%hp$ : f64[1, 1, #] = param {name = \"h0.$\"}\n%hs$ : f64[B, 1, #] = expand %hp$ {shape = [B, "
    "1, #]}\n%a$ : f64[B, S, #] = tanh %n$\n"
    "%r$ : f64[B, S, #] = scan %a$, %n$, %hs$ {dim = 1}\n",
    "%r$ : f64[B, S, #] = shift %n$ {by = 1, fill = 0, dim = 1}\n",
    "%r$ : f64[B, S, #] = shift %n$ {by = -2, fill = 1, dim = 1}\n",
    "%r$ : f64[B, S, #] = roll %n$ {dim = 1, by = -1}\n",
    "%f$ : f64[B, 1, #] = slice %n$ {dim = 1, end = 1}\n"
    "%r$ : f64[B, S, #] = diff %n$, %f$ {dim = 1}\n",
    "%f$ : f64[B, 1, #] = slice %n$ {dim = 1, end = 1}\n"
    "%gg$ : f64[B, S - 1, #] = slice %n$ {dim = 1, start = 1, end = S}\n"
    "%r$ : f64[B, S, #] = cat %gg$, %f$ {dim = 1}\n",
    "%gg$ : f64[B, S - 1, #] = slice %n$ {dim = 1, start = 1, end = S}\n"
    "%r$ : f64[B, S, #] = pad %gg$ {dim = 1, right = 1, value = 0.5}\n",
    "%gg$ : f64[B, S - 1, #] = slice %n$ {dim = 1, end = S - 1}\n"
    "%r$ : f64[B, S, #] = pad %gg$ {dim = 1, left = 1}\n",
    "%f$, %gg$ : f64[B, 1, #], f64[B, S - 1, #] = split_sizes %n$ {dim = 1, sizes = [1, S - 1]}\n"
    "%e$ : f64[B, S - 1, #] = mul %gg$, %f$\n%r$ : f64[B, S, #] = cat %f$, %e$ {dim = 1}\n",
    "%p$ : i64[S] = flip %positions {dim = 0}\n%r$ : f64[B, S, #] = index_select %n$, %p$ {dim = "
    "1}\n",
    "%p$ : i64[S] = flip %positions {dim = 0}\n%q$ : i64[1, S, 1] = view %p$ {shape = [1, S, 1]}\n"
    "%e$ : i64[B, S, #] = expand %q$ {shape = [B, S, #]}\n"
    "%r$ : f64[B, S, #] = gather %n$, %e$ {dim = 1}\n",
    "%two$ : i64[] = constant {value = 2}\n%p$ : i64[S] = floor_divide %positions, %two$\n"
    "%r$ : f64[B, S, #] = index_add %p$, %n$ {dim = 1, size = S}\n",
    "%two$ : i64[] = constant {value = 2}\n%p$ : i64[S] = floor_divide %positions, %two$\n"
    "%q$ : i64[1, S, 1] = view %p$ {shape = [1, S, 1]}\n"
    "%e$ : i64[B, S, #] = expand %q$ {shape = [B, S, #]}\n"
    "%r$ : f64[B, S, #] = scatter_add %e$, %n$ {dim = 1, size = S}\n",
    "%r$ : f64[B, S, #] = softmax %n$ {dim = 1}\n",
    "%r$ : f64[B, S, #] = log_softmax %n$ {dim = 1}\n",
    "%l$ : f64[B, 1, #] = logsumexp %n$ {dims = [1], keep = true}\n"
    "%r$ : f64[B, S, #] = sub %n$, %l$\n",
    "%l$, %m$ : f64[B, 1, #], i64[B, 1, #] = max_dim %n$ {dim = 1, keep = true}\n"
    "%r$ : f64[B, S, #] = sub %n$, %l$\n",
    "%l$, %m$ : f64[B, 2, #], i64[B, 2, #] = topk %n$ {dim = 1, k = 2}\n"
    "%s$ : f64[B, 1, #] = sum %l$ {dims = [1], keep = true}\n%r$ : f64[B, S, #] = mul %n$, %s$\n",
    "%l$ : f64[B, 1, #] = amin %n$ {dims = [1], keep = true}\n%r$ : f64[B, S, #] = mul %n$, %l$\n",
    "%l$ : f64[1, S, 1] = mean %n$ {dims = [0, 2], keep = true}\n"
    "%r$ : f64[B, S, #] = sub %n$, %l$\n",
    "%l$ : f64[B, 1, 1] = var %n$ {dims = [1, 2], keep = true, correction = 1}\n"
    "%m$ : f64[B, 1, 1] = add_scalar %l$ {value = 0.1}\n%s$ : f64[B, 1, 1] = sqrt %m$\n"
    "%r$ : f64[B, S, #] = div %n$, %s$\n",
    "%r$ : f64[B, S, #] = layer_norm %n$ {dims = 2}\n",
    "%t$ : f64[B, #, S] = permute %n$ {perm = [0, 2, 1]}\n"
    "%u$ : f64[B, #, S] = group_norm %t$ {groups = 2}\n"
    "%r$ : f64[B, S, #] = permute %u$ {perm = [0, 2, 1]}\n",
    "%w$ : f64[#] = param {name = \"norm.w$\"}\n%bb$ : f64[#] = param {name = \"bb$\"}\n"
    "%t$ : f64[B, #, S] = permute %n$ {perm = [0, 2, 1]}\n"
    "%u$, %rm$, %rv$ : f64[B, #, S], f64[#], f64[#] = batch_norm %t$, %w$, %bb$\n"
    "%r$ : f64[B, S, #] = permute %u$ {perm = [0, 2, 1]}\n",
    "%t$ : f64[B, #, S] = permute %n$ {perm = [0, 2, 1]}\n"
    "%w$ : f64[#, #, 2] = param {name = \"w$\"}\n%bb$ : f64[#] = param {name = \"bb$\"}\n"
    "%u$ : f64[B, #, S] = conv1d %t$, %w$, %bb$ {left = 2, dilation = 2}\n"
    "%r$ : f64[B, S, #] = permute %u$ {perm = [0, 2, 1]}\n",
    "%t$ : f64[B, #, S] = permute %n$ {perm = [0, 2, 1]}\n"
    "%w$ : f64[#, 1, 2] = param {name = \"w$\"}\n"
    "%u$ : f64[B, #, S] = conv1d %t$, %w$ {right = 1, groups = 0}\n"
    "%r$ : f64[B, S, #] = permute %u$ {perm = [0, 2, 1]}\n",
    "%t$ : f64[B, #, S] = permute %n$ {perm = [0, 2, 1]}\n"
    "%w$ : f64[#, ceil(#, 2), 1] = param {name = \"w$\"}\n"
    "%u$ : f64[B, #, S] = conv1d %t$, %w$ {groups = 2}\n"
    "%r$ : f64[B, S, #] = permute %u$ {perm = [0, 2, 1]}\n",
    "%e$ : f64[B, 2*S, #] = repeat %n$ {dim = 1, times = 2}\n"
    "%r$ : f64[B, S, #] = sum_groups %e$ {dim = 1, times = 2}\n",
    "%e$ : f64[B, 2*S, #] = repeat %n$ {dim = 1, times = 2}\n"
    "%v$ : f64[B, S, 2, #] = view %e$ {shape = [B, S, 2, #]}\n"
    "%r$ : f64[B, S, #] = sum %v$ {dims = [2]}\n",
    "%a$ : f64[B, S, #] = tanh %n$\n%v$ : f64[B, S, 2, #] = stack %n$, %a$ {dim = 2}\n"
    "%r$ : f64[B, S, #] = amax %v$ {dims = [2]}\n",
    "%a$ : f64[B, S, #] = tanh %n$\n%v$ : f64[B, 2, S, #] = stack %n$, %a$ {dim = 1}\n"
    "%f$ : f64[B, 2, S, #] = cumsum %v$ {dim = 2}\n%r$ : f64[B, S, #] = sum %f$ {dims = [1]}\n",
    "%a$ : f64[B, S, #] = tanh %n$\n%v$ : f64[2*B, S, #] = cat %n$, %a$ {dim = 0}\n"
    "%x$ : f64[2, B, S, #] = view %v$ {shape = [2, B, S, #]}\n%r$ : f64[B, S, #] = sum %x$ {dims = "
    "[0]}\n",
    // token by token
    "%v$ : f64[B, S, 2, ceil(#, 2)] = view %n$ {shape = [B, S, 2, ceil(#, 2)]}\n"
    "%f$ : f64[B, S, 2, ceil(#, 2)] = flip %v$ {dim = 2}\n"
    "%r$ : f64[B, S, #] = view %f$ {shape = [B, S, #]}\n",
    "%a$ : f64[B, S, #] = shift %n$ {by = -1, fill = 0, dim = 1}\n%z$ : f64[] = constant {value = "
    "0.1}\n"
    "%c$ : bool[B, S, #] = gt %n$, %z$\n%r$ : f64[B, S, #] = where %c$, %n$, %a$\n",
    "%two$ : i64[] = constant {value = 2}\n%p$ : i64[S] = remainder %positions, %two$\n"
    "%z$ : i64[] = constant\n%c$ : bool[S] = eq %p$, %z$\n%d$ : bool[S, 1] = view %c$ {shape = [S, "
    "1]}\n"
    "%a$ : f64[B, S, #] = mul_scalar %n$ {value = 2}\n%r$ : f64[B, S, #] = where %d$, %n$, %a$\n",
    "%a$ : f64[B, #, S] = permute %n$ {perm = [0, 2, 1]}\n"
    "%d$ : f64[B, #, S] = dropout %a$ {p = 0.4, site = 9$}\n"
    "%r$ : f64[B, S, #] = permute %d$ {perm = [0, 2, 1]}\n",
    "%a$ : f64[B*S, #] = view %n$ {shape = [B*S, #]}\n"
    "%d$ : f64[B*S, #] = dropout %a$ {p = 0.4, site = 9$}\n"
    "%r$ : f64[B, S, #] = view %d$ {shape = [B, S, #]}\n",
    "%i$ : i64[B, S] = argmax %n$ {dim = 2}\n%t$ : f64[#, #] = param {name = \"t$\"}\n"
    "%e$ : f64[B, S, #] = embedding %i$, %t$ {padding = 0}\n%r$ : f64[B, S, #] = mul %e$, %n$\n",
    "%i$ : i64[B, S] = shift %ids {by = -1, fill = 0}\n%t$ : f64[19, #] = param {name = \"t$\"}\n"
    "%r$ : f64[B, S, #] = embedding %i$, %t$\n",
    "%i$ : i64[B, S] = cumsum %keep {dim = 1}\n%t$ : f64[64, #] = param {name = \"t$\"}\n"
    "%r$ : f64[B, S, #] = embedding %i$, %t$\n",
    "%k$ : f64[B, S] = cast %keep {to = f64}\n%m$ : f64[B, S, 1] = view %k$ {shape = [B, S, 1]}\n"
    "%a$ : f64[B, S, #] = mul %n$, %m$\n%s$ : f64[B, 1, #] = sum %a$ {dims = [1], keep = true}\n"
    "%c$ : f64[B, 1, 1] = sum %m$ {dims = [1], keep = true}\n%p$ : f64[B, 1, #] = div %s$, %c$\n"
    "%r$ : f64[B, S, #] = sub %n$, %p$\n",
    "%f$ : f64[B, 1, #] = slice %n$ {dim = 1, end = 1}\n"
    "%e$ : f64[B, S, #] = expand %f$ {shape = [B, S, #]}\n"
    "%c$ : f64[B, S, 2*#] = cat %n$, %e$ {dim = 2}\n%w$ : f64[#, 2*#] = param {name = \"w$\"}\n"
    "%r$ : f64[B, S, #] = linear %c$, %w$\n",
    "%f$ : f64[B, #] = select %n$ {dim = 1, at = 1}\n%v$ : f64[B, 1, #] = view %f$ {shape = [B, 1, "
    "#]}\n"
    "%r$ : f64[B, S, #] = mul %n$, %v$\n",
    "%w$ : f64[#] = param {name = \"w$\"}\n%a$ : f64[B, S] = matmul %n$, %w$\n"
    "%bb$ : f64[B, S] = softmax %a$ {dim = 1}\n%c$ : f64[B, S, 1] = view %bb$ {shape = [B, S, 1]}\n"
    "%m$ : f64[B, S, #] = mul %n$, %c$\n%p$ : f64[B, 1, #] = sum %m$ {dims = [1], keep = true}\n"
    "%r$ : f64[B, S, #] = add %n$, %p$\n",
    // across the batch
    "%r$ : f64[B, S, #] = cumsum %n$ {dim = 0}\n",
    "%r$ : f64[B, S, #] = flip %n$ {dim = 0}\n",
    "%r$ : f64[B, S, #] = roll %n$ {dim = 0, by = 1}\n",
    "%r$ : f64[B, S, #] = softmax %n$ {dim = 0}\n",
    // tokens merged with something else
    "%v$ : f64[B*S, #] = view %n$ {shape = [B*S, #]}\n%c$ : f64[B*S, #] = cumsum %v$ {dim = 0}\n"
    "%r$ : f64[B, S, #] = view %c$ {shape = [B, S, #]}\n",
    "%v$ : f64[B, S*#] = view %n$ {shape = [B, S*#]}\n%c$ : f64[B, S*#] = softmax %v$ {dim = 1}\n"
    "%r$ : f64[B, S, #] = view %c$ {shape = [B, S, #]}\n",
    "%v$ : f64[B, S*#] = view %n$ {shape = [B, S*#]}\n%c$ : f64[B] = mean %v$ {dims = [1]}\n"
    "%d$ : f64[B, 1, 1] = view %c$ {shape = [B, 1, 1]}\n%r$ : f64[B, S, #] = mul %n$, %d$\n",
    // products over tokens
    "%s$ : f64[B, S, S] = bmm %n$, %n$ {tb = true}\n%c$ : f64[B, S, S] = triangle %s$\n"
    "%a$ : f64[B, S, S] = mul_scalar %c$ {value = 0.1}\n%r$ : f64[B, S, #] = bmm %a$, %n$\n",
    "%s$ : f64[B, S, S] = einsum %n$, %n$ {equation = \"bsd,btd->bst\"}\n"
    "%a$ : f64[B, S, S] = mul_scalar %s$ {value = 0.1}\n"
    "%r$ : f64[B, S, #] = einsum %a$, %n$ {equation = \"bts,btd->bsd\"}\n",
    "%s$ : f64[B, S, S] = bmm %n$, %n$ {tb = true}\n%c$ : f64[B, S, S] = cumsum %s$ {dim = 2}\n"
    "%a$ : f64[B, S, S] = softmax %c$ {dim = 1}\n%r$ : f64[B, S, #] = bmm %a$, %n$\n",
    "%s$ : f64[B, #, #] = einsum %n$, %n$ {equation = \"bsd,bse->bde\"}\n"
    "%a$ : f64[B, #, #] = mul_scalar %s$ {value = 0.1}\n"
    "%r$ : f64[B, S, #] = einsum %n$, %a$ {equation = \"bsd,bde->bse\"}\n",
    "%s$ : f64[B, S] = einsum %n$, %n$ {equation = \"bsd,bsd->bs\"}\n"
    "%a$ : f64[B, S, 1] = view %s$ {shape = [B, S, 1]}\n%r$ : f64[B, S, #] = mul %n$, %a$\n",
    // a state of 3 numbers for each channel, decayed
    "%w$ : f64[3, #] = param {name = \"w$\"}\n%bb$ : f64[B, S, 3] = linear %n$, %w$\n"
    "%c$ : f64[B, S, 1, 3] = view %bb$ {shape = [B, S, 1, 3]}\n"
    "%x$ : f64[B, S, #, 1] = view %n$ {shape = [B, S, #, 1]}\n"
    "%u$ : f64[B, S, #, 3] = mul %x$, %c$\n%gg$ : f64[B, S, #, 1] = sigmoid %x$\n"
    "%s$ : f64[B, S, #, 3] = scan %gg$, %u$ {dim = 1}\n%m$ : f64[B, S, #, 3] = mul %s$, %c$\n"
    "%r$ : f64[B, S, #] = sum %m$ {dims = [3]}\n",
    // latents that read the tokens, which read the latents
    "%l$ : f64[1, 1, 3, #] = param {name = \"l$\"}\n%q$ : f64[B, 1, 3, #] = expand %l$ {shape = "
    "[B, 1, 3, #]}\n"
    "%x$ : f64[B, 1, S, #] = view %n$ {shape = [B, 1, S, #]}\n"
    "%o$, %e$ : f64[B, 1, 3, #], f64[B, 1, 3] = sdpa %q$, %x$, %x$ {scale = 0.5, causal = false}\n"
    "%p$, %f$ : f64[B, 1, S, #], f64[B, 1, S] = sdpa %x$, %o$, %o$ {scale = 0.5, causal = false}\n"
    "%r$ : f64[B, S, #] = view %p$ {shape = [B, S, #]}\n",
    // keys of the stream's beginning
    "%x$ : f64[B, S, 2, ceil(#, 2)] = view %n$ {shape = [B, S, 2, ceil(#, 2)]}\n"
    "%q$ : f64[B, 2, S, ceil(#, 2)] = permute %x$ {perm = [0, 2, 1, 3]}\n"
    "%y$ : f64[B, S, 2, ceil(#, 2)] = view %h0 {shape = [B, S, 2, ceil(#, 2)]}\n"
    "%k$ : f64[B, 2, S, ceil(#, 2)] = permute %y$ {perm = [0, 2, 1, 3]}\n"
    "%o$, %e$ : f64[B, 2, S, ceil(#, 2)], f64[B, 2, S] = sdpa %q$, %k$, %k$ {scale = 0.5}\n"
    "%p$ : f64[B, S, 2, ceil(#, 2)] = permute %o$ {perm = [0, 2, 1, 3]}\n"
    "%r$ : f64[B, S, #] = view %p$ {shape = [B, S, #]}\n",
    // one vector of the tokens asks them all
    "%f$ : f64[B, 1, #] = mean %n$ {dims = [1], keep = true}\n"
    "%q$ : f64[B, 1, 1, #] = view %f$ {shape = [B, 1, 1, #]}\n"
    "%x$ : f64[B, 1, S, #] = view %n$ {shape = [B, 1, S, #]}\n"
    "%o$, %e$ : f64[B, 1, 1, #], f64[B, 1, 1] = sdpa %q$, %x$, %x$ {scale = 0.5, causal = false}\n"
    "%v$ : f64[B, 1, #] = view %o$ {shape = [B, 1, #]}\n%r$ : f64[B, S, #] = mul %n$, %v$\n",
};

// %allow$ : bool, [S, S] or with dimensions before, from positions and what the batch gives.
static const char *const computed[] = {
    "%rw$ : i64[S, 1] = view %positions {shape = [S, 1]}\n%cl$ : i64[1, S] = view %positions "
    "{shape = [1, S]}\n"
    "%allow$ : bool[S, S] = ge %rw$, %cl$\n",
    // documents end with id 0
    "%z$ : i64[] = constant\n%e$ : bool[B, S] = eq %ids, %z$\n%c$ : i64[B, S] = cast %e$ {to = "
    "i64}\n"
    "%s$ : i64[B, S] = cumsum %c$ {dim = 1}\n%x$ : i64[B, 1, S, 1] = view %s$ {shape = [B, 1, S, "
    "1]}\n"
    "%y$ : i64[B, 1, 1, S] = view %s$ {shape = [B, 1, 1, S]}\n%allow$ : bool[B, 1, S, S] = eq %x$, "
    "%y$\n",
    // padding of keys or the query itself
    "%z$ : i64[] = constant\n%e$ : bool[B, S] = ne %keep, %z$\n"
    "%y$ : bool[B, 1, 1, S] = view %e$ {shape = [B, 1, 1, S]}\n"
    "%rw$ : i64[S, 1] = view %positions {shape = [S, 1]}\n%cl$ : i64[1, S] = view %positions "
    "{shape = [1, S]}\n"
    "%d$ : bool[S, S] = eq %rw$, %cl$\n%allow$ : bool[B, 1, S, S] = logical_or %y$, %d$\n",
    // not behind, by a triangle of ones
    "%o1$ : f64[S, S] = constant {value = 1}\n%tr$ : f64[S, S] = triangle %o1$\n%hf$ : f64[] = "
    "constant {value = 0.5}\n"
    "%allow$ : bool[S, S] = gt %tr$, %hf$\n",
    "%o1$ : f64[S, S] = constant {value = 1}\n%tr$ : f64[S, S] = triangle %o1$ {diagonal = 1, "
    "upper = true}\n"
    "%hf$ : f64[] = constant {value = 0.5}\n%bb$ : bool[S, S] = gt %tr$, %hf$\n"
    "%allow$ : bool[S, S] = logical_not %bb$\n",
    // segments and the past, and a window of all
    "%x$ : i64[B, 1, S, 1] = view %segments {shape = [B, 1, S, 1]}\n"
    "%y$ : i64[B, 1, 1, S] = view %segments {shape = [B, 1, 1, S]}\n%e$ : bool[B, 1, S, S] = eq "
    "%x$, %y$\n"
    "%rw$ : i64[S, 1] = view %positions {shape = [S, 1]}\n%cl$ : i64[1, S] = view %positions "
    "{shape = [1, S]}\n"
    "%df$ : i64[S, S] = sub %rw$, %cl$\n%z$ : i64[] = constant\n%two$ : i64[] = constant {value = "
    "2}\n"
    "%c$ : bool[S, S] = ge %df$, %z$\n%w$ : bool[S, S] = lt %df$, %two$\n%cw$ : bool[S, S] = "
    "logical_and %c$, %w$\n"
    "%allow$ : bool[B, 1, S, S] = logical_or %e$, %cw$\n",
    // chunks of two, or the first key
    "%two$ : i64[] = constant {value = 2}\n%p$ : i64[S] = floor_divide %positions, %two$\n"
    "%rw$ : i64[S, 1] = view %p$ {shape = [S, 1]}\n%cl$ : i64[1, S] = view %p$ {shape = [1, S]}\n"
    "%c$ : bool[S, S] = eq %rw$, %cl$\n%z$ : i64[] = constant\n%f$ : bool[1, S] = eq %cl$, %z$\n"
    "%allow$ : bool[S, S] = logical_or %c$, %f$\n",
    // every other key of the past
    "%two$ : i64[] = constant {value = 2}\n%rw$ : i64[S, 1] = view %positions {shape = [S, 1]}\n"
    "%cl$ : i64[1, S] = view %positions {shape = [1, S]}\n%df$ : i64[S, S] = sub %rw$, %cl$\n"
    "%m$ : i64[S, S] = remainder %df$, %two$\n%z$ : i64[] = constant\n%c$ : bool[S, S] = eq %m$, "
    "%z$\n"
    "%bb$ : bool[S, S] = ge %df$, %z$\n%allow$ : bool[S, S] = logical_and %c$, %bb$\n",
    // positions given by the batch, counted anew in each document
    "%p$ : i64[B, S] = input {name = \"given$\", role = \"positions\"}\n"
    "%x$ : i64[B, 1, S, 1] = view %p$ {shape = [B, 1, S, 1]}\n%y$ : i64[B, 1, 1, S] = view %p$ "
    "{shape = [B, 1, 1, S]}\n"
    "%allow$ : bool[B, 1, S, S] = ge %x$, %y$\n",
};

static void from_text(gen *g, const char *text)
{
    for (; *text; text++) {
        if (*text == '$')
            PUT("%d", I);
        else if (*text == '#')
            PUT("%lld", D);
        else
            PUT("%c", *text);
    }
}

void snippet(gen *g)
{
    norm(g);
    from_text(g, maps[pick(g, (int)ASP_COUNT_OF(maps))]);
    residual(g);
}

// Attention under a mask that the graph computes, given as bool, as 0 and -inf, or as 0 and a large
// number, to the op or written out.
void computed_mask(gen *g)
{
    static const char *const far[] = {"-inf", "-1e9", "-1.7976931348623157e308"};
    const int kind = pick(g, 4), mask = pick(g, (int)ASP_COUNT_OF(computed));
    const char *batch = strstr(computed[mask], "%allow$ : bool[B") ? "B, 1, " : "";
    const bool op = kind == 0 || coin(g);
    norm(g);
    from_text(g, "%hq$ : f64[B, S, 2, ceil(#, 2)] = view %n$ {shape = [B, S, 2, ceil(#, 2)]}\n"
                 "%hp$ : f64[B, 2, S, ceil(#, 2)] = permute %hq$ {perm = [0, 2, 1, 3]}\n");
    from_text(g, computed[mask]);
    if (kind > 0) {
        PUT("%%ze%d : f64[] = constant\n%%fa%d : f64[] = constant {value = %s}\n", I, I,
            far[kind - 1]);
        PUT("%%add%d : f64[%sS, S] = where %%allow%d, %%ze%d, %%fa%d\n", I, batch, I, I, I);
    }
    if (op) {
        PUT("%%ho%d, %%hl%d : f64[B, 2, S, %lld], f64[B, 2, S] = sdpa %%hp%d, %%hp%d, %%hp%d, "
            "%%%s%d {scale = 0.5, causal = false, bias = true}\n",
            I, I, D / 2, I, I, I, kind ? "add" : "allow", I);
    } else {
        PUT("%%sd%d : f64[B, 2, S, S] = bmm %%hp%d, %%hp%d {tb = true}\n", I, I, I);
        PUT("%%sc%d : f64[B, 2, S, S] = mul_scalar %%sd%d {value = 0.5}\n", I, I);
        PUT("%%sm%d : f64[B, 2, S, S] = add %%sc%d, %%add%d\n", I, I, I);
        PUT("%%pr%d : f64[B, 2, S, S] = softmax %%sm%d {dim = 3}\n", I, I);
        PUT("%%ho%d : f64[B, 2, S, %lld] = bmm %%pr%d, %%hp%d\n", I, D / 2, I, I);
    }
    from_text(g, "%hr$ : f64[B, S, 2, ceil(#, 2)] = permute %ho$ {perm = [0, 2, 1, 3]}\n"
                 "%r$ : f64[B, S, #] = view %hr$ {shape = [B, S, #]}\n");
    residual(g);
}

// A loss %loss of %logits : f64[B, S, 19] and the last stream %last.
static const char *const losses[] = {
    "%next : i64[B, S] = shift %labels\n"
    "%loss : f64[] = cross_entropy %logits, %next, %cw\n",
    "%lp : f64[B, S, 19] = log_softmax %logits {dim = 2}\n%loss : f64[] = nll_loss %lp, %labels\n",
    "%each : f64[B, S] = cross_entropy %logits, %labels {reduction = \"none\", smoothing = 0.1}\n"
    "%kf : f64[B, S] = cast %keep {to = f64}\n%m : f64[B, S] = mul %each, %kf\n%s : f64[] = sum %m "
    "{dims = [0, 1]}\n"
    "%c : f64[] = sum %kf {dims = [0, 1]}\n%loss : f64[] = div %s, %c\n",
    "%each : f64[B, S] = cross_entropy %logits, %labels {reduction = \"none\"}\n"
    "%s : f64[B] = sum %each {dims = [1]}\n%w : f64[B] = softmax %s {dim = 0}\n%m : f64[B] = mul "
    "%w, %s\n"
    "%loss : f64[] = sum %m {dims = [0]}\n",
    "%each : f64[B, S] = cross_entropy %logits, %labels {reduction = \"none\", softcap = 4}\n"
    "%loss : f64[] = logsumexp %each {dims = [0, 1]}\n",
    "%t : f64[B, S, 19] = flip %logits {dim = 1}\n%loss : f64[] = mse_loss %logits, %t\n",
    "%next : i64[B, S] = shift %labels\n%a : f64[] = cross_entropy %logits, %next\n"
    "%two : i64[B, S] = shift %labels {by = 2}\n%b : f64[] = cross_entropy %logits, %two "
    "{smoothing = 0.2}\n"
    "%c : f64[] = mul_scalar %b {value = 0.3}\n%sq : f64[B, S, 19] = mul %logits, %logits\n"
    "%m : f64[] = mean %sq {dims = [0, 1, 2]}\n%ab : f64[] = add %a, %c\n%loss : f64[] = add %ab, "
    "%m\n",
    "%pool : f64[B, 19] = mean %logits {dims = [1]}\n%first : i64[B] = select %ids {dim = 1, at = "
    "0}\n"
    "%loss : f64[] = cross_entropy %pool, %first\n",
    "%p : f64[B, S, 19] = softmax %logits {dim = 2}\n%lp : f64[B, S, 19] = log_softmax %logits "
    "{dim = 2}\n"
    "%m : f64[B, S, 19] = mul %p, %lp\n%loss : f64[] = mean %m {dims = [0, 1, 2]}\n",
    "%n : f64[] = constant {value = 7}\n%next : i64[B, S] = shift %labels\n"
    "%a : f64[] = cross_entropy %logits, %next, %cw, %n\n%loss : f64[] = mul_scalar %a {value = "
    "2}\n",
    "%mx : f64[B, S] = amax %logits {dims = [2]}\n%mm : f64[B] = amin %mx {dims = [1]}\n"
    "%loss : f64[] = mean %mm {dims = [0]}\n",
};

void loss_snippet(gen *g)
{
    const int which = pick(g, (int)ASP_COUNT_OF(losses));
    PUT("%%ci : i64[19] = iota {start = 1}\n%%cf : f64[19] = cast %%ci {to = f64}\n"
        "%%cw : f64[19] = mul_scalar %%cf {value = 0.1}\n");
    from_text(g, losses[which]);
}
