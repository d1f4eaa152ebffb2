"""What packaging/ has for clusters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from clusters import PACKAGING, scripts, through_models, tool, until_connected
from conftest import needs
from patience import HANG
from servers import Controller, ParameterServer, program


def test_kubernetes_takes_the_manifest() -> None:
    """By the schema of the newest release, no unknown fields. The chart has its own tests."""
    needs("kubernetes_validate")
    program = Path(sys.executable).parent / "kubernetes-validate"
    manifest = PACKAGING / "kubernetes" / "train.yaml"
    done = subprocess.run([program, "--strict", manifest], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0 and "passed" in done.stdout + done.stderr, done.stdout + done.stderr


def test_kubeflows_trainer_takes_the_runtime() -> None:
    """By the models of its API, in which unknown fields are lost."""
    needs("kubernetes_validate")
    import yaml

    text = (PACKAGING / "kubernetes" / "trainer-runtime.yaml").read_text()
    (runtime,) = yaml.safe_load_all(text)
    assert through_models(text) == [runtime]
    runtime["spec"]["mlPolicy"]["torch"]["numProcPerNodes"] = 1
    assert through_models(yaml.safe_dump(runtime)) != [runtime]


def test_shellcheck_has_nothing_to_say() -> None:
    found = list(scripts())
    assert PACKAGING / "slurm" / "prolog" in found and len(found) > 15, found
    command = [tool("shellcheck"), "--external-sources", "--source-path=SCRIPTDIR", *found]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_has_nothing_to_say() -> None:
    command = [tool("hadolint"), PACKAGING / "container" / "Containerfile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_opentelemetry_collector_has_what_its_pipeline_names() -> None:
    """No collector can be had here, so this is its form alone; the scrape jobs run through a Prometheus elsewhere."""
    needs("kubernetes_validate")
    import yaml

    config = yaml.safe_load((PACKAGING / "opentelemetry" / "collector.yaml").read_text())
    (pipeline,) = config["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert sorted(pipeline[kind]) == sorted(config[kind]), kind
    (receiver,) = config["receivers"].values()
    # Where the Debian package has it.
    assert receiver["config"] == "${file:/usr/share/doc/thc-servers/examples/prometheus/thc.yml}"
    assert "examples/prometheus" in (PACKAGING / "debian" / "build").read_text()
    assert (PACKAGING / "prometheus" / "thc.yml").is_file()


def test_slurms_script_says_what_it_takes() -> None:
    done = subprocess.run(["bash", PACKAGING / "slurm" / "train.sbatch"], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2 and done.stderr.startswith("usage: sbatch --nodes N")


def test_slurms_script_starts_a_torchrun_on_each_node(tmp_path: Path) -> None:
    """With stand-ins for Slurm's programs that show what they are asked."""
    for name, says in (("scontrol", "printf 'node7\\nnode9\\n'"), ("srun", 'shift; SLURM_NODEID=1 exec "$@"'), ("python3", 'echo "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node[7,9]", "SLURM_NNODES": "2"}
    done = subprocess.run(
        ["bash", PACKAGING / "slurm" / "train.sbatch", "train.py", "--its", "own arguments"],
        capture_output=True, text=True, timeout=HANG, env=variables | {"SLURM_GPUS_ON_NODE": "8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == (
        "-m torch.distributed.run --nnodes 2 --node_rank 1 --nproc_per_node 8 --master_addr node7 --master_port 20041 "
        "train.py --its own arguments"
    ).split()


def test_slurms_prolog_makes_a_job_that_its_epilog_deletes(tmp_path: Path) -> None:
    """With a real controller, the first of two named ones is away; by hand it was run under Slurm 22.05."""
    (tmp_path / "scontrol").write_text(
        "#!/bin/sh\ncase $* in *hostnames*) printf 'n1\\nn2\\n';; *) echo \"JobId=7 Comment=$COMMENT Batch=1\";; esac\n"
    )
    (tmp_path / "scontrol").chmod(0o755)
    controller_program = program("thc-controller")
    assert controller_program is not None

    with ParameterServer() as server, Controller(server) as controller:
        settings = tmp_path / "slurm.env"
        settings.write_text(
            f'PATH={tmp_path}:{controller_program.parent}:$PATH\nTHC_CONTROLLERS="127.0.0.1:1 {controller.address}"\n'
        )

        def run(script: str, comment: str, **more: str) -> subprocess.CompletedProcess[str]:
            environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_COMMENT": comment, "COMMENT": comment}
            return subprocess.run(
                [PACKAGING / "slurm" / script], env=environment | {"THC_SLURM_ENV": str(settings)} | more,
                capture_output=True, text=True, timeout=HANG,
            )  # fmt: skip

        def ask(*words: str) -> subprocess.CompletedProcess[str]:
            command = [str(controller_program), "--controller", controller.address, *words, "--json"]
            return subprocess.run(command, capture_output=True, text=True, timeout=HANG)

        def jobs() -> dict[str, int]:
            return {job["spec"]["name"]: job["spec"]["workers"] for job in json.loads(ask("job", "list").stdout)["jobs"]}

        until_connected(lambda: ask("target", "list"))
        for script in ("prolog", "epilog"):
            done = run(script, "somebody else's words")
            assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
        assert jobs() == {}
        # A second time it is a job that was requeued.
        for _ in range(2):
            done = run("prolog", "thc granularity=30 fraction=1/32")
            assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
            assert jobs() == {"slurm-7": 2}
        done = run("task-prolog", "thc granularity=30")
        assert done.stdout == f"export THC_PS=thc://127.0.0.1:1,{controller.address}/slurm-7\n", done
        assert run("task-prolog", "thc", THC_PS="10.0.0.1:9000").stdout == run("task-prolog", "other").stdout == ""
        # What the user writes does not reach further than the job.
        done = run("prolog", "thc target=ps")
        assert done.returncode == 1 and "target=ps is none of bits, granularity" in done.stderr, done
        done = run("epilog", "thc")
        assert (done.returncode, done.stderr) == (0, ""), done
        assert jobs() == {}
        done = run("prolog", "thc granularity=300 fraction=1/32")
        assert done.returncode == 1 and "granularity is 300: use 15 to 255" in done.stderr, done
    done = run("epilog", "thc")
    assert done.returncode == 1 and done.stderr.startswith("thc: job slurm-7 stays on the controller"), done
