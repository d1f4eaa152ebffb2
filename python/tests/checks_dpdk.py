"""Ranks on hosts of their own whose packets go past the kernel, through DPDK's packet sockets, while gloo talks through
the kernel of the same interfaces. What comes out is compared, bit for bit, with what comes out over kernel UDP."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import thc
import thc.torch
import torch
import torch.distributed as dist
from rig import (
    RANK,
    SIZE,
    Weights,
    backward,
    ddp,
    error_of,
    exact_mean,
    gradients,
    is_compressed,
    join,
    refused,
    same_everywhere,
)
from servers import COOKIE

# Two thc-ps with the same jobs. The kernel has no route to the second one.
KERNEL, BEYOND = os.environ["TEST_KERNEL_PS"], os.environ["TEST_DPDK_PS"]
DPDK = {"devices": ["net_af_packet0,iface=eth0"], "address": os.environ["TEST_DPDK_ADDRESSES"].split()[RANK], "hugepages": False}


def join_both(job: int, **options: Any) -> tuple[thc.Group, thc.Group]:
    """The same job over kernel UDP and over DPDK."""
    return join(KERNEL, job, **options), join(BEYOND, job, io="dpdk", dpdk=DPDK, **options)


def arrays(step: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(100 * step + RANK).standard_normal(700_001, np.float32)


def check_the_same_bits_as_over_kernel_udp() -> None:
    groups = join_both(1)
    for step in range(4):
        means = [group.allreduce(arrays(step), feedback="weights") for group in groups]
        assert np.array_equal(*means), step
        exact = sum(np.random.default_rng(100 * step + r).standard_normal(700_001, np.float32) for r in range(SIZE)) / SIZE
        if step == 0:
            assert is_compressed(float(((means[1] - exact) ** 2).sum() / (exact**2).sum()))
    # Some at a time, and uncompressed.
    under_way = [[group.allreduce_async(arrays(step)) for step in range(4)] for group in groups]
    for kernel, beyond in zip(*under_way):
        assert np.array_equal(kernel.wait(), beyond.wait())
    raw = [group.allreduce(arrays(9), mode="raw") for group in groups]
    assert np.array_equal(*raw)
    assert groups[1].stats().packets_up > 0
    for group in groups:
        group.close()


def check_a_device_that_is_taken() -> None:
    group = join(BEYOND, 2, io="dpdk", dpdk=DPDK)
    with refused(thc.ThcError, "net_af_packet0"):
        join(BEYOND, 3, io="dpdk", dpdk=DPDK)
    # The first does not mind; and once it is closed, the device is free.
    group.allreduce(arrays(0))
    group.close()
    dist.barrier()
    again = join(BEYOND, 2, io="dpdk", dpdk=DPDK)
    again.allreduce(arrays(0))
    again.close()


def check_training_configured_by_a_file() -> None:
    lines = [f'ps = "{BEYOND}"', "job = 4", f'cookie = "{COOKIE:#x}"', 'timeout = "20s"', 'join_timeout = "20s"', 'io = "dpdk"']
    lines += ["[dpdk]", f'devices = ["{DPDK["devices"][0]}"]', f'address = "{DPDK["address"]}"', "hugepages = false"]
    with tempfile.TemporaryDirectory(prefix="thc-test-") as folder:
        file = Path(folder) / "thc.toml"
        file.write_text("\n".join(lines) + "\n")
        with patch.dict(os.environ, {"THC_CONFIG": str(file)}):
            model = thc.torch.wrap(ddp(Weights()), fallback=False, compression=thc.torch.Compression(feedback=True))
    hook = thc.torch.hook_of(model)
    reference = ddp(Weights())
    thc.torch.wrap(reference, group=join(KERNEL, 4), fallback=False, compression=thc.torch.Compression(feedback=True))
    for step in range(3):
        # Processes that load data are forked from one that has DPDK.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = list(torch.utils.data.DataLoader(list(range(4)), batch_size=2, num_workers=1))
        assert len(loaded) == 2
        means = backward(model, gradients(step))
        assert same_everywhere(means)
        if step == 0:
            assert is_compressed(error_of(means, exact_mean(step)))
        assert all(torch.equal(a, b) for a, b in zip(means, backward(reference, gradients(step))))
    assert hook.error is None and hook.group.ps == BEYOND
    hook.group.close()


def check_configured_by_variables() -> None:
    variables = {"THC_PS": BEYOND, "THC_JOB": "5", "THC_COOKIE": hex(COOKIE), "THC_IO": "dpdk", "THC_DPDK": json.dumps(DPDK)}
    with patch.dict(os.environ, variables):
        group = thc.Group.from_env(join=thc.Join(timeout=20, join_timeout=20))
    kernel = join(KERNEL, 5)
    assert np.array_equal(group.allreduce(arrays(1)), kernel.allreduce(arrays(1)))
    group.close()
