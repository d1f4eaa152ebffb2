# The targets for developers. `make` without a target lists them.

.DEFAULT_GOAL := help
.PHONY: help demo testbed test check fuzz soak soak-async hostile kills kills-async awaits systemd site wheels deb release bench bench-torch bench-allreduce p4 p4-front p4-tofino lint deps toolchain packages guest-kernel dpdk fmt clippy

SHELL := /bin/sh

# rustup installs cargo in this folder, which is not on the PATH of every shell.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

# The path is absolute and exported, so that all benchmarks and this file use the same folder for results.
ifndef CARGO_TARGET_DIR
export CARGO_TARGET_DIR := $(CURDIR)/target
endif

# Arguments for `thc demo`: make demo ARGS="--steps 100 --workers 8"
ARGS ?=
# The demo's aggregator: make demo AGGREGATOR=ps, controller, shares, interpreted, dpdk or bmv2
AGGREGATOR ?= ps
# The transport of the Debian package: make deb IO=dpdk
IO ?= udp
# The names of the benchmarks to run: make bench BENCH=codec
BENCH ?= *
# The time after which a run of tests that hangs is ended. Single tests end earlier (.config/nextest.toml).
TEST_TIMEOUT ?= 40m

# `timeout` ends all processes that it started, but must stay in the foreground for Ctrl-C to reach tests on a terminal.
BOUNDED := bounded=; if command -v timeout >/dev/null; then \
    if [ -t 0 ]; then bounded='timeout --foreground $(TEST_TIMEOUT)'; \
    else bounded='timeout -k 30 $(TEST_TIMEOUT)'; fi; fi

# Debian packages that tests use. If they cannot be installed, the tests that need them report that they were not run.
TEST_PACKAGES := libdpdk-dev libclang-dev pkg-config iproute2 ethtool tshark valgrind \
    user-mode-linux kmod qemu-system-x86 python3-numpy python3-sklearn dpkg-dev
# A further package for benchmarks, which has dpdk-testpmd.
bench: TEST_PACKAGES += dpdk-dev

# The optional features that this machine supports.
FEATURES = $$(.ci/features)
CLIPPY = cargo clippy --workspace --all-targets $(FEATURES) -- -D warnings
comma := ,

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: toolchain $(filter dpdk,$(AGGREGATOR)) ## Build, then train a small model through THC and compare with exact averaging (AGGREGATOR=ps, ARGS for thc demo)
	cargo build --profile demo --package thc-demo --package thc-ps --bins \
	    $(if $(filter controller interpreted bmv2,$(AGGREGATOR)),--package thc-controller,--no-default-features --features thc-ps/cli) \
	    $(if $(filter interpreted,$(AGGREGATOR)),--package thc-v1model) \
	    $(if $(filter dpdk,$(AGGREGATOR)),--features thc-demo/dpdk$(comma)thc-ps/dpdk)
	@"$(CARGO_TARGET_DIR)"/demo/thc demo --aggregator $(AGGREGATOR) $(ARGS)

# The testbed, as root: make testbed WORKERS=4 AGGREGATOR=ps, shares or bmv2 RATE=1gbit CMD='thc-worker --ps $$THC_PS --coordinates 16777216'
testbed: toolchain ## Hosts with links of RATE, an AGGREGATOR, and CMD on each of WORKERS hosts, or a shell (as root)
	cargo build --release --package thc-demo --package thc-ps --package thc-controller --package thc-worker --bins
	@PATH="$(CARGO_TARGET_DIR)/release:$$PATH" thc testbed --workers $(or $(WORKERS),4) --aggregator $(AGGREGATOR) \
	    --rate $(or $(RATE),1gbit) $(if $(CMD),--command '$(CMD)')

# Parts of `make test` outside Rust's tests write a line here for each check that they could not run.
export THC_NOT_RUN := $(CARGO_TARGET_DIR)/not-run.txt

check: deps fmt clippy ## The quick half of `make test`: formatting, clippy, all tests but those of whole systems and of Python
	if cargo nextest --version >/dev/null 2>&1; then nextest='nextest run'; else nextest='test --tests'; fi; \
	cargo $$nextest --workspace --exclude thc-tests $(FEATURES)

# Tests wait more than they compute, so compilers share the cores with them, at a lower priority. Clippy begins when nextest has
# checked that everything is built, since both need the same lock.
test: deps packages guest-kernel fmt ## Formatting, clippy, all tests, doc tests (THC_REQUIRE=all: what cannot run here is an error; TEST_TIMEOUT=40m)
	@mkdir -p "$(CARGO_TARGET_DIR)" && : >"$$THC_NOT_RUN"
	@for release in newest oldest; do .ci/torch-environment $$release ahead; done >"$(CARGO_TARGET_DIR)/torch-ahead.log" 2>&1 &
	@$(BOUNDED); \
	run() { echo "$$*"; "$$@"; }; \
	if cargo nextest --version >/dev/null 2>&1; then tests='nextest run'; else \
	    tests='test --tests'; \
	    echo 'test: cargo-nextest is not installed; using cargo test, which is slower'; \
	fi; \
	built=; if run .ci/python-environment dev; then built=1; elif [ $$? != 3 ]; then exit 1; fi; \
	echo 'test: the tests of Python run beside all else; what they print comes after'; \
	THC_PYTHON_BUILT=$$built python/tests/run </dev/null >"$(CARGO_TARGET_DIR)/python-tests.log" 2>&1 & \
	python=$$! clippy= status=0; \
	trap 'kill $$python $$clippy 2>/dev/null; exit 130' INT TERM; \
	run nice cargo $$tests --workspace $(FEATURES) --no-run || { kill $$python; exit 1; }; \
	echo 'test: clippy runs beside the tests; what it prints comes after'; \
	{ sleep 30 && exec nice $(CLIPPY); } </dev/null >"$(CARGO_TARGET_DIR)/clippy.log" 2>&1 & \
	clippy=$$!; \
	run $$bounded cargo $$tests --workspace $(FEATURES) --no-fail-fast || status=$$?; \
	run cargo test --workspace $(FEATURES) --doc || status=$$?; \
	wait $$clippy || status=$$?; \
	cat "$(CARGO_TARGET_DIR)/clippy.log"; \
	wait $$python || status=$$?; \
	cat "$(CARGO_TARGET_DIR)/python-tests.log"; \
	exit $$status
	python/tests/run --gpu
	tests/p4runtime_client/run
	@.ci/not-run

fuzz: toolchain ## Feed every fuzz target with made-up inputs, guided by coverage (TIME=60s each, TARGET=one, JOBS=processes)
	tests/fuzz/run

soak: toolchain ## Jobs in virtual time in which everything goes wrong (COUNT=1000000 all-reduces, SEED=first, TRACE=1000 each, JOBS)
	cargo build --release --package thc-soak
	"$(CARGO_TARGET_DIR)"/release/thc-soak $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
	    $(if $(TRACE),--trace $(TRACE)) $(if $(JOBS),--jobs $(JOBS))

bench: toolchain packages ## Run all benchmarks, or BENCH=name; results in target/bench/*.json and as one table
	@rm -f "$(CARGO_TARGET_DIR)"/bench/*.json
	cargo build --profile bench --workspace --bin thc-ps --bin thc-worker $(FEATURES)
	@status=0; \
	cargo bench --workspace $(FEATURES) --bench '$(BENCH)' --no-fail-fast || status=$$?; \
	echo; awk -f .ci/bench-table.awk "$(CARGO_TARGET_DIR)"/bench/*.json || status=$$?; \
	exit $$status

bench-torch: toolchain ## Train with PyTorch on shaped links: THC, gloo, torch's hooks (20 to 25 minutes; ARGS=--quick: 3)
	testbed/bench-torch/run $(ARGS)

bench-allreduce: toolchain ## One all-reduce of 64 MiB by 4 workers on links of 1 Gb/s, colocated, against gloo (ARGS=--help)
	@case '$(or $(ARGS),gloo)' in *gloo*) [ -n "$$THC_PYTHON" ] || .ci/torch-environment newest ahead ;; esac
	THC_PYTHON="$${THC_PYTHON:-$(CARGO_TARGET_DIR)/python-venv-newest/bin/python}" \
	    cargo run --quiet --profile dist --package thc-studies -- bench allreduce $(if $(ARGS),$(ARGS),--against gloo)

hostile: toolchain ## 5 million hostile packets at a running job: same bits, goodput against noise (4 minutes; ARGS=--help)
	cargo build --release --package thc-ps --package thc-worker --bins
	cargo run --release --package thc-tests --bin hostile -- $(ARGS)

kills: toolchain ## Server, workers, controller killed COUNT=100 times each in a run: same bits, time to recover (ARGS=--help)
	cargo build --release --package thc-ps --package thc-worker --package thc-controller --bins
	cargo run --release --package thc-tests --bin kills -- $(or $(COUNT),100) $(ARGS)

kills-async: toolchain ## thc-model killed COUNT=100 times: nothing forgotten beyond what is promised (2 minutes)
	THC_KILLS=$(or $(COUNT),100) cargo test --package thc-model --test kills -- --ignored --nocapture many_kills

soak-async: toolchain ## thc-model while workers come, leave and are killed and the server dies, COUNT=500 times, from seed SEED=1: no number is wrong (2 minutes)
	THC_CHURN=$(or $(COUNT),500) THC_CHURN_SEED=$(or $(SEED),1) cargo test --package thc-model --test churn -- --ignored --exact --nocapture workers_come_and_go_for_long

awaits: toolchain ## Each request of a controller is lost, unanswered or hangs once, and so does their disk: all jobs add up (10 minutes)
	cargo test -p thc-controller --test operate -- --ignored --nocapture every_await_fails_in_every_way

systemd: toolchain packages ## Boot systemd in a kernel or a container of its own and see the Debian package's services start, be killed, hang, be upgraded and purged (3 minutes; as root)
	cargo build --release --package thc-ps --package thc-controller --package thc-model --package thc-worker --bins
	tests/systemd/run "$(CARGO_TARGET_DIR)/release"

# The folder for output of the compilers for Tofino that is not kept.
TOFINO_OUT := $(CARGO_TARGET_DIR)/tofino

p4: ## Compile the switch programs with p4c and note the hashes of their sources
	@command -v p4c-bm2-ss >/dev/null || { \
	    echo 'p4: p4c-bm2-ss not found; install p4c from the p4lang project (packages for Debian and Ubuntu and' >&2; \
	    echo '    build instructions: https://github.com/p4lang/p4c#installing-packaged-versions-of-p4c),' >&2; \
	    echo '    or use its container p4lang/p4c; p4/build keeps what was compiled last.' >&2; exit 1; }
	cd p4 && p4c-bm2-ss --std p4-16 --p4runtime-files build/thc.p4info.txtpb,build/thc.p4info.bin -o build/thc.json v1model/thc.p4
	@sed -i 's/^ *//' p4/build/thc.json # six bytes in seven are indentation, and programs have this file in them
	@cd p4 && LC_ALL=C sha256sum shared/*.p4 v1model/*.p4 build/thc.json build/thc.p4info.txtpb >build/sources.sha256
	@echo 'p4: p4/build/thc.json and thc.p4info.txtpb are up to date'
	@if command -v p4c-barefoot >/dev/null; then $(MAKE) --no-print-directory p4-tofino; else \
	    echo 'p4: not compiled for Tofino: p4c-barefoot not found (p4c built with -DENABLE_TOFINO=ON has it);'; \
	    echo '    p4/build/tofino keeps what was compiled last.'; fi

# The compiler's front end dumps the program for a chip after its last pass, and tests run that program. With --pp the compiler ends there.
P4_FRONT = cd p4 && rm -f "$(TOFINO_OUT)"/front/*.p4 && p4c-barefoot --std p4-16 --target $(1) --arch $(2) -D__TARGET_TOFINO__=$(3) \
    --Wdisable --top4 FrontEndLast --dump "$(TOFINO_OUT)/front" --pp /dev/null -o "$(TOFINO_OUT)/front" tna/thc.p4 && \
    sed -e '/^\#include/d' -e 's/^ \{16,\}/            /' "$(TOFINO_OUT)"/front/*FrontEndLast.p4 >build/tofino/$(1).p4

p4-front: # Compile the programs for Tofino and Tofino 2 with the front end alone, in seconds
	@mkdir -p p4/build/tofino "$(TOFINO_OUT)/front"
	python3 p4/tna/verdict.py >p4/tna/generated/verdict.p4
	$(call P4_FRONT,tofino,tna,1)
	$(call P4_FRONT,tofino2,t2na,2)

# One chip: the compiler, the assembler, and what a switch loads.
P4_CHIP = cd p4 && p4c-barefoot --std p4-16 --target $(1) --arch $(2) -D__TARGET_TOFINO__=$(3) -g --verbose --p4runtime-force-std-externs \
    --p4runtime-files build/tofino/$(1).p4info.txtpb --bf-rt-schema "$(TOFINO_OUT)/$(1)/bfrt.json" -o "$(TOFINO_OUT)/$(1)" tna/thc.p4 && \
    bfas --target $(1) -o "$(TOFINO_OUT)/$(1)/assembled" "$(TOFINO_OUT)/$(1)"/pipe/*.bfa && mkdir -p build/tofino/$(1) && \
    cp "$(TOFINO_OUT)/$(1)/assembled/$(1).bin" build/tofino/$(1)/tofino.bin && \
    gzip -9n <"$(TOFINO_OUT)/$(1)/bfrt.json" >build/tofino/$(1)/bfrt.json.gz && \
    gzip -9n <"$(TOFINO_OUT)/$(1)/assembled/context.json" >build/tofino/$(1)/context.json.gz

p4-tofino: p4-front # Compile and assemble for Tofino and Tofino 2, in minutes, and keep the programs and the compiler's report on the fit
	@mkdir -p p4/build/tofino "$(TOFINO_OUT)/tofino" "$(TOFINO_OUT)/tofino2"
	$(call P4_CHIP,tofino,tna,1)
	$(call P4_CHIP,tofino2,t2na,2)
	python3 p4/fit.py "$(TOFINO_OUT)/tofino" "$(TOFINO_OUT)/tofino2" >p4/build/tofino/fit.json
	python3 p4/fit.py --picture p4/build/tofino/fit.json >docs/tofino.svg
	@cd p4 && LC_ALL=C sha256sum shared/*.p4 tna/*.p4 tna/generated/*.p4 build/tofino/*.json build/tofino/*.txtpb build/tofino/*.p4 \
	    build/tofino/*/* >build/tofino/sources.sha256
	@echo 'p4: p4/build/tofino is up to date'

wheels: toolchain ## Wheels of the Python package for x86-64 and aarch64, any Linux with glibc 2.17, and a source distribution
	python/wheels

deb: toolchain $(filter dpdk,$(IO)) ## The Debian package of the servers and thc-worker for this machine: target/deb (IO=dpdk: with DPDK)
	cargo build --profile dist --package thc-ps --package thc-controller --package thc-model --package thc-worker --bins $(if $(filter dpdk,$(IO)),--features dpdk)
	packaging/debian/build "$(CARGO_TARGET_DIR)/dist" "$(CARGO_TARGET_DIR)/deb"

release: wheels deb ## All that a release has, with checksums, in target/thc-VERSION: wheels, Debian package, image (RUNTIME=its base)
	packaging/release "$(CARGO_TARGET_DIR)"

site: toolchain ## The documentation as a site, with the API of Rust and Python: target/site/index.html
	.ci/site

lint: deps fmt clippy ## Formatting, clippy, and licences and advisories of all dependencies
	@cargo deny --version >/dev/null 2>&1 || { \
	    echo 'lint: cargo-deny is missing: installing it with cargo install (minutes)'; \
	    cargo install --locked cargo-deny; }
	cargo deny --workspace check

fmt:
	cargo fmt --all -- --check

clippy:
	$(CLIPPY)

deps: toolchain ## Check the toolchain and install what is missing of it
	@for part in fmt:rustfmt clippy:clippy; do \
	    cargo "$${part%:*}" --version >/dev/null 2>&1 && continue; \
	    if ! command -v rustup >/dev/null; then \
	        echo "deps: $${part#*:} is missing and there is no rustup to install it with;" \
	             'install it the way cargo was installed' >&2; exit 1; \
	    fi; \
	    echo "deps: $${part#*:} is missing: installing it with rustup"; \
	    rustup component add "$${part#*:}" || exit 1; \
	done

packages:
	@command -v apt-get >/dev/null || exit 0; \
	missing=$$(for package in $(TEST_PACKAGES); do \
	    dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || printf ' %s' $$package; done); \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" != 0 ]; then \
	    echo "deps: not installed:$$missing; the tests that need them are not run (sudo apt-get install$$missing)"; \
	    exit 0; \
	fi; \
	echo "deps: installing with apt-get:$$missing"; \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; } || \
	    echo "deps: could not install$$missing; the tests that need them are not run"

# The kernel of the machine with an emulated card, which is unpacked and not installed.
guest-kernel:
	@command -v apt-get >/dev/null || exit 0; \
	[ ! -e "$(CARGO_TARGET_DIR)/guest-kernel/boot" ] || exit 0; \
	package=$$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p'); \
	mkdir -p "$(CARGO_TARGET_DIR)/guest-kernel" && cd "$(CARGO_TARGET_DIR)/guest-kernel" && \
	apt-get download -q -o APT::Sandbox::User=root "$$package" && dpkg-deb -x ./*.deb . && rm ./*.deb || \
	    echo 'deps: no kernel linux-image-cloud-amd64 from apt-get; the test that needs it is not run'

dpdk:
	@[ -z "$$(.ci/features)" ] || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo 'deps: DPDK is missing: installing libdpdk-dev and libclang-dev with apt-get'; \
	    apt-get update -q && DEBIAN_FRONTEND=noninteractive \
	        apt-get install -q -y --no-install-recommends libdpdk-dev libclang-dev pkg-config; \
	else \
	    echo 'deps: DPDK is missing; on Debian: sudo apt-get install libdpdk-dev libclang-dev pkg-config' >&2; exit 1; \
	fi

# A build needs cargo in a supported version, and a linker.
toolchain:
	@command -v cargo >/dev/null || { \
	    echo 'deps: cargo not found; install the Rust toolchain, for example with rustup:' >&2; \
	    echo "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" >&2; exit 1; }
	@wanted=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
	have=$$(cargo --version | cut -d ' ' -f 2); \
	[ "$$(printf '%s\n' "$$wanted" "$$have" | sort -V | head -n 1)" = "$$wanted" ] || { \
	    echo "deps: cargo $$have is too old, $$wanted is needed; with rustup: rustup update stable" >&2; exit 1; }
	@command -v cc >/dev/null || { \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	        echo 'deps: there is no linker (cc): installing gcc with apt-get'; \
	        apt-get update -q && apt-get install -q -y --no-install-recommends gcc libc6-dev; \
	    else \
	        echo 'deps: there is no linker (cc); on Debian: sudo apt-get install gcc libc6-dev' >&2; exit 1; \
	    fi; }
