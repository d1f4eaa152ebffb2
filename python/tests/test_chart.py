"""The Helm chart: what it renders is what Kubernetes takes, and what its programs run with."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from clusters import CHART, PACKAGING, helm, resources_of_kind, render, through_models, tool, until_connected
from conftest import needs
from crew import free_port
from patience import HANG
from servers import REPOSITORY, Process, program

EXAMPLE = PACKAGING / "helm" / "example.yaml"
ONE = "ps.servers[0].name=ps1,ps.servers[0].node=n1,ps.servers[0].ip=127.0.0.1"
CERTIFICATES = ("controller", "operator", "worker", "targets", "ps")


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    needs("kubernetes_validate")
    tool("helm")


def test_it_has_the_version_of_the_programs() -> None:
    found = re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), re.MULTILINE)
    assert found is not None
    text = (CHART / "Chart.yaml").read_text()
    assert f"\nversion: {found[1]}\n" in text and f'\nappVersion: "{found[1]}"\n' in text, text


def test_kubernetes_takes_the_example(tmp_path: Path) -> None:
    """By the schemas of the newest release, and by those of the operators; no unknown fields."""
    import yaml

    done = helm("lint", "--strict", CHART, "--values", EXAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr
    resources = render("--values", EXAMPLE)
    custom = [each for each in resources if each["apiVersion"].startswith("monitoring.coreos.com/")]
    file = tmp_path / "resources.yaml"
    file.write_text(yaml.safe_dump_all(each for each in resources if each not in custom))
    validate = [str(Path(sys.executable).parent / "kubernetes-validate"), "--strict", str(file)]
    checked = subprocess.run(validate, capture_output=True, text=True, timeout=HANG)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert (checked.stdout + checked.stderr).count("passed") == len(resources) - len(custom)
    if custom:
        assert {each["kind"] for each in custom} == {"PodMonitor", "PrometheusRule"}
        assert through_models(yaml.safe_dump_all(custom)) == custom
        # The check sees what is not known.
        custom[0]["spec"]["podMetricsEndpoints"][0]["pathh"] = "/metrics"
        assert through_models(yaml.safe_dump_all(custom)) != custom
    for each in resources:
        if each["kind"] in ("Deployment", "StatefulSet"):
            pod = each["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            assert not pod["automountServiceAccountToken"] and pod["securityContext"]["runAsNonRoot"]
            assert "readinessProbe" in container and "livenessProbe" not in container or container["name"] == "thc-controller"
            assert container["securityContext"]["readOnlyRootFilesystem"]
            # Whoever reads a pod reads no secret.
            assert "0x" not in json.dumps(each)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("controller.enabled=true", "the controller has no target: list servers in ps.servers"),
        (f"{ONE},ps.servers[1].name=ps1,ps.servers[1].node=n2,ps.servers[1].ip=10.0.0.2", "two servers named ps1"),
        (f"{ONE},ps.servers[1].name=ps2,ps.servers[1].node=n1,ps.servers[1].ip=10.0.0.2", "ps1 and ps2 on node n1"),
        (f"{ONE},controller.replicas=2", "'/controller': additional properties 'replicas' not allowed"),
        (f"{ONE},ps.port=1", "'/ps': additional properties 'port' not allowed"),
        (f"{ONE},controller.jobs[0].name=a,controller.jobs[0].cookie=0x1", "'/controller/jobs/0/cookie'"),
    ],
)
def test_what_cannot_be_is_refused(values: str, says: str) -> None:
    done = helm("template", "thc", CHART, "--set", values)
    assert done.returncode != 0 and says in done.stderr, done.stderr


def secrets(resources: list[dict[str, Any]], folder: Path) -> None:
    """The certificates as pods have them: a folder for each Secret."""
    made = resources_of_kind(resources, "Secret")
    for of in CERTIFICATES:
        (folder / of).mkdir()
        for file, content in made[f"thc-{of}-tls"]["data"].items():
            (folder / of / file).write_bytes(base64.b64decode(content))


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=HANG) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def role_environment(folder: Path) -> dict[str, str]:
    files = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}
    return os.environ | {f"THC_CONTROLLER_{name}": str(folder / file) for name, file in files.items()}


def test_the_programs_run_with_what_it_renders(tmp_path: Path) -> None:
    """A controller, a server, their certificates, a declared job, and two workers; on this host in place of pods and nodes."""
    ports = [free_port() for _ in range(2)]
    resources = render(
        "--set", ONE,
        "--set", f"ps.p4runtimePort={ports[0]},ps.httpPort={ports[1]},ps.udpPort=1",
        "--set-json", 'controller.jobs=[{"name": "train", "workers": 2, "tables": [{"bits": 2}]}]',
    )  # fmt: skip
    secrets(resources, tmp_path)
    (container,) = resources_of_kind(resources, "Deployment")["thc-ps-ps1"]["spec"]["template"]["spec"]["containers"]
    # The kernel chooses the UDP port.
    words = [re.sub("^--listen=.*", "--listen=127.0.0.1:0", word) for word in container["command"]]
    command = [word.replace("0.0.0.0", "127.0.0.1").replace("/etc/thc/tls", f"{tmp_path}/ps") for word in words]
    config = resources_of_kind(resources, "ConfigMap")["thc-controller"]["data"]["thc-controller.toml"]
    for old, new in (
        ("0.0.0.0:970[01]", "127.0.0.1:0"),
        ("https://ps1.thc-ps.default.svc:", "https://localhost:"),
        ("/etc/thc/targets", f"{tmp_path}/targets"),
        ("/etc/thc/tls", f"{tmp_path}/controller"),
        ("/var/lib/thc-controller", str(tmp_path)),
    ):
        config, count = re.subn(old, new, config)
        assert count, (old, config)
    with ExitStack() as stack:
        server = stack.enter_context(Process(command[0], "", *command[1:]))
        udp_port = server.hear(r"^ready .*:(\d+)")
        config = config.replace("udp_port = 1", f"udp_port = {udp_port}")
        controller = stack.enter_context(Process("thc-controller", config, "run"))
        metrics, port = controller.hear(r"^metrics http://(\S+)/metrics"), controller.hear(r"^ready \S+:(\d+)")
        assert [get(f"http://{metrics}/{probe}")[0] for probe in ("healthz", "readyz")] == [200, 200]

        def ask(role: str, *words: str) -> subprocess.CompletedProcess[str]:
            whole = [str(program("thc-controller")), "--controller", f"localhost:{port}", *words]
            return subprocess.run(whole, env=role_environment(tmp_path / role), capture_output=True, text=True, timeout=HANG)

        until_connected(lambda: ask("operator", "target", "list", "--json"))
        made = ask("operator", "job", "create", "other", "--workers", "2")
        assert made.returncode == 0, made.stderr
        # The authority of workers does not open the P4Runtime service, where the cookies are.
        assert (tmp_path / "worker/ca.crt").read_bytes() != (tmp_path / "ps/ca.crt").read_bytes()
        assert (tmp_path / "targets/ca.crt").read_bytes() == (tmp_path / "ps/ca.crt").read_bytes()

        url = f"thcs://localhost:{port}/train"
        workers = [
            subprocess.Popen(
                [str(program("thc-worker")), "--ps", url, "--coordinates", "5000", "--json"],
                env=role_environment(tmp_path / "worker"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for _ in range(2)
        ]  # fmt: skip
        for worker in workers:
            said = worker.communicate(timeout=HANG)
            assert worker.returncode == 0, said


@contextmanager
def api_server(secrets: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What the chart asks a cluster of: which Secrets there are. The rest of a cluster is not here."""

    def kinds(version: str, *names: str) -> dict[str, Any]:
        of = [{"name": f"{name.lower()}s", "namespaced": True, "kind": name, "verbs": ["get", "patch"]} for name in names]
        return {"kind": "APIResourceList", "groupVersion": version, "resources": of}

    v1 = {"groupVersion": "apps/v1", "version": "v1"}
    apps = {"name": "apps", "versions": [v1], "preferredVersion": v1}

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            name = path.removeprefix("/api/v1/namespaces/default/secrets/")
            answers: dict[str, Any] = {
                "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
                "/api": {"kind": "APIVersions", "versions": ["v1"]},
                "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [apps]},
                "/api/v1": kinds("v1", "Secret", "ConfigMap", "PersistentVolumeClaim", "Service"),
                "/apis/apps/v1": kinds("apps/v1", "Deployment", "StatefulSet"),
            }
            answer = secrets.get(name) if name != path else answers.get(path)
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(answer or missing).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_upgrade_keeps_secrets_and_makes_all_certificates_or_none(tmp_path: Path) -> None:
    import yaml

    values = ("--set", f"{ONE},model.enabled=true")
    there = resources_of_kind(render(*values), "Secret")
    assert set(there) == {f"thc-{of}-tls" for of in CERTIFICATES} | {"thc-model"}
    # Two installations have nothing in common.
    assert resources_of_kind(render(*values), "Secret")["thc-ps-tls"]["data"] != there["thc-ps-tls"]["data"]

    # As an installation leaves them.
    for each in there.values():
        each["metadata"]["annotations"] |= {"meta.helm.sh/release-name": "thc", "meta.helm.sh/release-namespace": "default"}

    def upgrade(known: dict[str, dict[str, Any]]) -> subprocess.CompletedProcess[str]:
        with api_server(known) as url:
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "test",
                "clusters": [{"name": "test", "cluster": {"server": url}}],
                "users": [{"name": "test", "user": {}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            }))  # fmt: skip
            return helm("template", "thc", CHART, "--dry-run=server", "--disable-openapi-validation", "--kubeconfig", kubeconfig, *values)

    done = upgrade(there)
    assert done.returncode == 0, done.stderr
    kept = resources_of_kind([each for each in yaml.safe_load_all(done.stdout) if each], "Secret")
    assert {name: each["data"] for name, each in kept.items()} == {name: each["data"] for name, each in there.items()}
    some = {name: each for name, each in there.items() if name != "thc-worker-tls"}
    done = upgrade(some)
    assert done.returncode != 0 and "only controller, operator, ps, targets are there: delete these too" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("values", "name", "says"),
    [
        ("ps.servers[0].name=ps1,ps.servers[0].node=n7,ps.servers[0].ip=10.0.0.7,ps.job.workers=4", "thc-ps", r"(job 1: 4 workers)"),
        ("model.enabled=true", "thc-model", r"^ready (\S+)"),
    ],
)
def test_servers_without_a_controller_run_with_their_secrets(
    values: str, name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources = render("--set", f"controller.enabled=false,{values}")
    (deployment,) = resources_of_kind(resources, "Deployment").values()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    key = variable["valueFrom"]["secretKeyRef"]
    secret = resources_of_kind(resources, "Secret")[key["name"]]["data"][key["key"]]
    monkeypatch.setenv(variable["name"], base64.b64decode(secret).decode())
    command = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", word) for word in container["command"]]
    command = [word.replace("/var/lib/thc-model", str(tmp_path)) for word in command]
    with Process(command[0], "", *command[1:]) as server:
        assert command[0] == name
        server.hear(says)


def test_a_job_without_a_controller_has_a_cookie_of_its_own() -> None:
    def cookie() -> int:
        made = resources_of_kind(render("--set", f"controller.enabled=false,{ONE}"), "Secret")
        return int(base64.b64decode(made["thc-ps-cookie"]["data"]["cookie"]), 16)

    found = {cookie() for _ in range(3)}
    assert len(found) == 3 and all(0 < each < 2**32 for each in found), found
