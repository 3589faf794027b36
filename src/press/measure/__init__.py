"""The benchmark: times what chapters compare, and writes the committed results.

    make bench                            # about 25 minutes
    python -m press.measure --only memory  # renew one section

All contenders of a case compute the same result, which is asserted before anything is timed: on the
outputs and, where a backward pass is timed, on gradients. Then they take turns in one process, and
each ratio is taken within one round, so that whatever slows the machine slows all of them. What the
process did before may still slow some contenders more than others, as the cases by allocator show.
A number is a median over the rounds, with its quartiles. The timer is ``torch.utils.benchmark``. It
all runs on the CPU, in float32; memory is measured on Linux alone.
"""
