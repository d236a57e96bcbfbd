"""Shares tensors between processes by torch.multiprocessing, both ways: below 1 MiB, of 8, 12 and 20 MiB, beside more memory than MIB of a GPU. The other process
checks what it is given, changes one tensor in place, and sends one of its own. Results are checked by value, by copies alone.

    share.py MIB
"""

import sys

import torch
import torch.multiprocessing as multiprocessing


def numbers(start, count):
    return torch.arange(start, start + count, dtype=torch.int32)


def check(what, tensor, expected):
    assert torch.equal(tensor.cpu(), expected), f"{what}: {tensor.cpu()} is not {expected}"


def other(given, back, go):
    small, large, view, larger = given.get()
    check("small", small, numbers(1, 1000))
    check("large", large, numbers(2, 3 << 20))
    check("view", view, numbers(2, 3 << 20)[5000:70000])
    check("larger", larger, numbers(3, 5 << 20))
    large.copy_(numbers(77, 3 << 20))
    larger[:9].copy_(numbers(78, 9))
    mine = [numbers(9, 2 << 20).cuda(), numbers(10, 500).cuda()]
    beside = [numbers(n, 4 << 20).cuda() for n in range(3)]
    torch.cuda.synchronize()
    back.put(mine)
    go.get()
    check("mine", mine[0], numbers(1234, 2 << 20))
    for n, tensor in enumerate(beside):
        check("beside", tensor, numbers(n, 4 << 20))
    del small, large, view, larger
    back.put("done")


def main():
    mib = int(sys.argv[1])
    context = multiprocessing.get_context("spawn")
    given, back, go = context.Queue(), context.Queue(), context.Queue()
    small, large, larger = numbers(1, 1000).cuda(), numbers(2, 3 << 20).cuda(), numbers(3, 5 << 20).cuda()
    beside = [numbers(n, 4 << 20).cuda() for n in range(mib // 16 * 3 // 2)]
    process = context.Process(target=other, args=(given, back, go))
    process.start()
    given.put((small, large, large[5000:70000], larger))
    theirs = back.get()
    check("changed", large, numbers(77, 3 << 20))
    check("changed in part", larger, torch.cat([numbers(78, 9), numbers(12, (5 << 20) - 9)]))
    check("theirs", theirs[0], numbers(9, 2 << 20))
    check("theirs, small", theirs[1], numbers(10, 500))
    theirs[0].copy_(numbers(1234, 2 << 20))
    torch.cuda.synchronize()
    go.put("go")
    assert back.get() == "done"
    del theirs
    process.join()
    assert process.exitcode == 0, process.exitcode
    for n, tensor in enumerate(beside):
        check("beside", tensor, numbers(n, 4 << 20))
    check("small", small, numbers(1, 1000))
    print(f"shared beside {len(beside)} tensors of 16 MiB")


if __name__ == "__main__":
    main()
