"""The package with DPDK: `checks_dpdk.py` on a crew whose ranks have hosts of their own; and what one without it says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
import thc
from conftest import needs
from crew import Report, names, run
from namespaces import Network, NotPossible
from servers import REPOSITORY, ParameterServer

WORKERS = 2
DEVICE = {"devices": ["net_af_packet0,iface=eth0"], "hugepages": False}


def beyond_kernel(number: int) -> str:
    """An address of a host that its kernel does not know of, in another network."""
    return f"10.75.0.{number + 1}"


def refusal() -> str:
    """What a group says to a device that does not exist."""
    with pytest.raises(thc.ThcError) as caught:
        thc.Group("10.75.0.9:9000", cookie=1, join=thc.Join(io="dpdk", dpdk={"devices": ["net_nothing0"], "address": "10.75.0.1", "hugepages": False}))
    return str(caught.value)


@pytest.fixture(scope="module")
def built_in() -> bool:
    """Whether the package has DPDK."""
    return "built without DPDK" not in refusal()


def test_the_package_has_what_the_machine_has(built_in: bool) -> None:
    # .ci/python-environment builds it with these.
    features = subprocess.run([REPOSITORY / ".ci/features"], capture_output=True, text=True, check=True).stdout
    assert built_in == ("dpdk" in features.split())


def test_what_is_missing_is_named(built_in: bool) -> None:
    if built_in:
        assert "net_nothing0" in refusal()
    else:
        # It names the feature and the packages.
        assert all(part in refusal() for part in ("--features dpdk", "libdpdk-dev", "libclang-dev"))


def test_rank_0s_own_server_is_not_beyond_the_kernel() -> None:
    with pytest.raises(thc.ConfigError, match="kernel UDP.*THC_PS"):
        thc.Group.local(0, 1, join=thc.Join(port=0, cookie=5, io="dpdk", dpdk={**DEVICE, "address": "10.75.0.1"}))


@pytest.mark.parametrize("text", ["devices", '["net_null0"]'])
def test_a_wrong_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for name, value in {"THC_PS": "10.75.0.9:9000", "THC_COOKIE": "1", "RANK": "0", "THC_IO": "dpdk", "THC_DPDK": text}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(thc.ConfigError, match="THC_DPDK is"):
        thc.Group.from_env()


@pytest.fixture(scope="module")
def report(built_in: bool) -> Iterator[Report]:
    if not built_in:
        pytest.skip("not run: the Python package was built without the feature dpdk (libdpdk-dev not found?)")
    needs("torch")
    jobs = [{"data_slots": 64, "norm_slots": 8, "workers": WORKERS}] * len(names("checks_dpdk")) * 2
    try:
        with Network(WORKERS) as network:
            server = network.prefix("ps")
            kernel = ParameterServer(*jobs, listen=f"{network.server}:9000", host=server)
            with kernel, ParameterServer(*jobs, listen=f"{beyond_kernel(WORKERS)}:9000", dpdk=DEVICE, host=server) as beyond:
                yield run(
                    "checks_dpdk", WORKERS, network=network, TEST_KERNEL_PS=kernel.address, TEST_DPDK_PS=beyond.address,
                    TEST_DPDK_ADDRESSES=" ".join(beyond_kernel(rank) for rank in range(WORKERS)),
                )
    except NotPossible as reason:
        pytest.skip(f"not run: {reason}")


@pytest.mark.parametrize("check", names("checks_dpdk"))
def test_ranks(report: Report, check: str) -> None:
    report.verify(check)
