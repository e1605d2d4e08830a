# The tests, as part of the Makefile: `make tests` and what is made and run besides the product.

FUZZ_SECONDS ?= 60
SOAK_MINUTES ?= 30

.PHONY: check soak races races-quick fuzz fuzzers mutants tests test-programs test-objects

ifneq ($(filter tests check soak races,$(MAKECMDGOALS)),)
$(if $(shell pkg-config --exists check && echo yes),,$(error missing: check (Debian: scripts/setup \
    installs all that tests need; Fedora: dnf install check-devel)))
endif
test_libs = $(shell pkg-config --libs check 2>/dev/null)

# -- programs: tests/programs/NAME.c, scripts/bench/load/NAME.c, or what is said here ----

example-all-reduce_src := worker-lib/examples/all_reduce.c
example-groups_src := worker-lib/examples/groups.c
example-compress_src := worker-lib/examples/compress.c
store-load_src := $(wildcard scripts/bench/load/store-load*.c)
chaos-relay_src := $(wildcard tests/chaos/relay*.c)
chain-worker_src := $(wildcard tests/chaos/chain*.c)
# the unit tests' disk, for the simulator and the fuzzers
memory_disk := tests/fakes/disk/memdisk.c tests/fakes/disk/memfile.c
# it observes every step
crun-sim_src := $(wildcard tests/sim/*.c) tests/worlds/membership_names.c $(memory_disk)
crun-sim_ldflags := -Wl,--wrap=membership_step -Wl,--wrap=journal_wants_snapshot
# the real server and client on simulated machines: its own loop and connections
crun-replicas-sim_src := $(wildcard tests/replicas/*.c) $(addprefix tests/sim/,world.c trace.c view.c)
crun-replicas-sim_ldflags := $(addprefix -Wl$(comma)--wrap=,clock_ms clock_us clock_wall_ms \
    id128_random socketpair local_peer_find replica_create replica_destroy)
worker-calls_src := tests/programs/worker-calls.c tests/worlds/any_memory.c
# a rank dies in one of these calls
checkpoint-ranks_ldflags := $(addprefix -Wl$(comma)--wrap=,write pwrite fsync renameat unlinkat \
    openat)
# it has no other nodes to connect to
preflight-load_ldflags := -Wl,--wrap=link_probe_all

one_file_programs := $(wildcard tests/programs/*.c) \
    $(filter-out %-dialect.c %-echo.c,$(wildcard scripts/bench/load/*.c))
test_programs := $(basename $(notdir $(one_file_programs))) crun-sim crun-replicas-sim chaos-relay chain-worker \
    example-all-reduce example-groups example-compress
test_binaries := $(addprefix $B/bin/,$(test_programs))

define test_program_rules
$B/bin/$1: $(call objects,$(or $($1_src),$(filter %/$1.c,$(one_file_programs)))) $(archives)
$B/bin/$1: all_ldflags += $($1_ldflags)
endef
$(foreach p,$(test_programs),$(eval $(call test_program_rules,$p)))
$(test_binaries):
	$(link_program)

# -- unit tests: build/tests/test_group is tests/unit/agent/workers/test_group.c --------

# these need the emulated GPU, some also the stand-in for NCCL
emulated_units := tests/unit/fakes/cuda/% tests/unit/fakes/nccl/% \
    $(addprefix tests/unit/worker-lib/backends/nccl/test_,backend_nccl.c nccl_memory.c \
        nccl_interface.c nccl_split.c nccl_watch.c nccl_worlds.c) \
    tests/unit/worker-lib/world/test_gpu_worlds.c
unit_src := $(filter-out $(if $(emulated),,$(emulated_units)),$(call sources,tests/unit,c))
units := $(addprefix $B/tests/,$(basename $(notdir $(unit_src))))

helper_src := $(wildcard tests/worlds/*.c $(if $(emulated),tests/worlds/emulated/*.c) \
    $(addprefix tests/fakes/,confinement/*.c disk/*.c net/*.c nvml/*.c))
# in place of the library's world: not for all tests
stub_src := tests/worlds/world_stub.c
$(addprefix $B/tests/test_,checkpoint_ranks ddp ddp_layout ddp_window optim optim_mistakes \
    optim_state): \
    $(call objects,$(stub_src))
# an archive, so that a test links only what it uses
helpers := $B/lib/libtest-helpers.a
$(helpers): $(call objects,$(filter-out %_preload.c $(stub_src),$(helper_src)))
	$(make_archive)

# a test may have kernels
unit_objects = $(call objects,$1 $(if $(emulated),$(wildcard $(dir $1)*.cu)))
$(foreach s,$(unit_src),$(eval $B/tests/$(basename $(notdir $s)): $(call unit_objects,$s)))
$B/tests/test_log_answers: all_ldflags += -Wl,--wrap=outlet_find_parts
$B/tests/test_registry_restart: all_ldflags += -Wl,--wrap=journal_wants_snapshot
$(units): $(helpers) $(archives)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(all_ldflags) -o $@ $(filter %.o,$^) $(helpers) $(link_libs) $(test_libs) \
	    $($(@F)_ldlibs)

# OpenSSL's own ends; the product loads it
test_tls_openssl_ldlibs = $(shell pkg-config --libs openssl)
test_tls_memory_ldlibs = $(test_tls_openssl_ldlibs) -Wl,--wrap=calloc

# Unit tests take longer to optimize than to run, but for one. The trees of the sanitizers
# optimize them, for the warnings that only come then.
plain_units := $(filter-out %/test_op_groups.c,$(if $(SAN),,$(unit_src)))
$(call objects,$(plain_units)): OPT := -O0 -g
$(call objects,$(plain_units)): hardening := $(filter-out -D_FORTIFY_SOURCE=%,$(hardening))

# -- libraries in place of others --------------------------------------------------------

preload_src := $(filter %_preload.c,$(helper_src))
preloads := $(patsubst %.c,$B/lib/%.so,$(notdir $(preload_src)))
$(foreach s,$(preload_src),$(eval $B/lib/$(basename $(notdir $s)).so: $(call objects,$s)))
$(preloads):
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(all_ldflags) -o $@ $^ -ldl
# programs find it under the name of the real library
$B/lib/nvml_preload.so: all_ldflags += -Wl,-soname,libnvidia-ml.so.1

# no fused multiply-add: results have the bits of the host
emulated_flags = -std=c++17 -O3 -g -I. -Iworker-lib -Itests/fakes/cuda -DCRUN_CUDA \
    -DCRUN_EMULATED -Wall -Wextra -Wno-unused-parameter -Wno-unused-function -Werror -fPIC \
    -ffp-contract=off $(san)
# a GPU does not allow misaligned access
kernel_flags = $(if $(filter asan,$(SAN)),,-fsanitize=alignment -fsanitize-undefined-trap-on-error)
$B/obj/%.o: %.cc
	@mkdir -p $(@D)
	$(call say,C++,$<)
	$(Q)$(CXX) $(emulated_flags) -MMD -MP -c -o $@ $<
$(emulated_lib): $(call objects,$(wildcard tests/fakes/cuda/*.cc) tests/fakes/cuda/fault.c)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared -Wl,-soname,$(@F) $(all_ldflags) -o $@ $^

# The stand-in for NCCL sums with the library's own loops.
standin := $(if $(emulated),$B/lib/libnccl-standin.so)
$(standin): $(call objects,$(wildcard tests/fakes/nccl/*.c)) $(call archive,worker-lib)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(all_ldflags) -Wl,--exclude-libs,ALL -o $@ $^ $(emulated_libs) -lm

# -- fuzzers have a separate build tree, in which everything is instrumented -------------

fuzzers := $(patsubst tests/fuzz/%.c,$B/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
$(fuzzers): $(call objects,$(memory_disk))
$B/fuzz/fuzz_tcpstore: $(call objects,tests/fuzz/tcpstore_model.c)
$B/fuzz/fuzz_json_patch: $(call objects,tests/worlds/json_apply.c)
fuzzers: $(fuzzers)
$(fuzzers): $B/fuzz/%: $B/obj/tests/fuzz/%.o $(archives)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -fsanitize=fuzzer $(all_ldflags) -o $@ $(filter %.o,$^) $(link_libs)

# -- what is made and run ----------------------------------------------------------------

test-programs: $(test_binaries)
$(binaries) $(test_binaries) $(worker_libs) $(units) $(standin) $(fuzzers): | $(emulated_lib)
tests: all test-programs $(units) $(preloads) $(standin)
# compiled only, for a compiler's warnings
test-objects: $(call objects,$(unit_src) $(helper_src))

selected = $(if $T,--match '$T')
check: tests
	$(Q)scripts/run-tests --build $B $(selected)

soak: tests
	$(Q)scripts/run-tests --build $B --functional --busy --minutes $(SOAK_MINUTES) $(selected)

fuzz:
	$(Q)$(MAKE) --no-print-directory B=build-fuzz CC=clang OPT='-O1 -g' \
	    CFLAGS='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -DFUZZING' \
	    LDFLAGS='-fsanitize=address,undefined' fuzzers
	$(Q)scripts/checks/fuzzers --build build-fuzz --seconds $(FUZZ_SECONDS) $(selected)

mutants:
	$(Q)scripts/checks/mutants $(selected)

# the unit tests of threaded code
threaded := backend_.* checkpoint.* cuda_.* ddp device engine failure_notice gpu_monitor gpu_worlds \
    hostile_store keeper key_ring keyed log_writer memory_.* nccl_.* numa_binding op_groups optim.* \
    page_reader preflight reduce sampler shm.* split store.* tcpstore thread timeout_culprit tls \
    tunnel world
space := $(subst ,, )
named = --match '$(or $T,^test_($(subst $(space),|,$(strip $1)))$$)'
races:
	$(Q)$(MAKE) --no-print-directory SAN=tsan tests
	$(Q)scripts/run-tests --build build-tsan --unit $(call named,$(threaded))
	$(Q)$(MAKE) --no-print-directory SAN=tsan CUDA=emulated tests
	$(Q)scripts/run-tests --build build-emulated-tsan --unit --mode emulated \
	    $(call named,$(threaded))

# what each run of CI has time for: only these tests, and only the layers that they use
quick_races := engine ddp checkpoint_ranks store_server_doors failure_notice store_client \
    timeout_culprit
quick_layers := $(addprefix rendezvous/,common wire tcpstore) \
    $(addprefix worker-lib/,core compute meeting engine world backends training checkpoint)
races-quick:
	$(Q)$(MAKE) --no-print-directory SAN=tsan CUDA=no layers='$(quick_layers)' \
	    $(addprefix build-tsan/tests/test_,$(quick_races))
	$(Q)scripts/run-tests --build build-tsan --unit $(call named,$(quick_races))
