# crun: one flat Makefile, and tests/tests.mk for what is not installed. The top half lists the
# layers and programs; the bottom half is machinery.
#
#   make              what is installed, into build/bin and build/lib
#   make tests        the rest: tests, simulators, load programs, examples
#   make check        unit and functional tests         T=name selects some
#   make soak         the functional tests again and again on busy cores, SOAK_MINUTES=30
#   make races        threaded code under ThreadSanitizer, with an emulated GPU, too
#   make fuzz         every fuzzer for FUZZ_SECONDS=60  (clang)
#   make mutants      deliberately wrong versions; a test must catch each
#   make lint         commits, layers, words, names, format
#   make install      PREFIX=/usr/local DESTDIR= CRUN=crun        make uninstall
#   CUDA=no           without the parts that need a CUDA toolkit; CUDA_HOME, CUDA_ARCH
#   CUDA=emulated     a separate build tree with an emulated GPU, for tests
#   SAN=asan|tsan     a separate build tree with that sanitizer
#   V=1               show the commands

# -- what there is ---------------------------------------------------------------------

# The name under which the launcher is installed: crun is also a container runtime.
# CRUN_ANYWAY=1 installs it as crun beside podman, too.
CRUN ?= crun

# A layer is a library of all sources below its folder, except those of other layers and
# programs. scripts/checks/layers says which folder may include which.
layers := rendezvous/common/base rendezvous agent launcher \
    worker-lib worker-lib/train worker-lib/preflight
main_files := rendezvous/crund.c rendezvous/server/confinement.c launcher/crun.c \
              launcher/crunctl/crunctl.c worker-lib/train/main.c worker-lib/preflight/main.c
not_in_layers := worker-lib/coll-bench/% worker-lib/examples/%

sources = $(sort $(shell find $1 -name '*.$2'))
layer_sources = $(filter-out $(main_files) $(not_in_layers) $(addsuffix /%,$(filter \
    $1/%,$(layers))),$(call sources,$1,$2))

# What is installed; each program links the layers that it uses, all others link all.
installed := crun crund crunctl crun-preflight train coll-bench
crun_layers := launcher agent rendezvous rendezvous/common/base
crund_layers := rendezvous rendezvous/common/base
crunctl_layers := launcher rendezvous rendezvous/common/base
train_layers := worker-lib/train worker-lib rendezvous rendezvous/common/base
crun-preflight_layers := worker-lib/preflight worker-lib rendezvous rendezvous/common/base
coll-bench_layers := worker-lib rendezvous rendezvous/common/base

crund_src := rendezvous/crund.c rendezvous/server/confinement.c
crund_ldlibs = $(seccomp_libs)
crunctl_src := launcher/crunctl/crunctl.c
crun_src := launcher/crun.c
train_src := worker-lib/train/main.c
crun-preflight_src := worker-lib/preflight/main.c
coll-bench_src := $(wildcard worker-lib/coll-bench/*.c)

# The worker library, made from the layers' objects.
worker_lib := crun-worker
worker_lib_layers := rendezvous rendezvous/common/base
worker_lib_needs := event_core event_pthreads cjson z m pthread

# What Python workers import: crun finds it in ../lib/crun/python, seen from its own folder.
python_files := $(patsubst worker-lib/python/%,%,$(call sources,worker-lib/python,py) \
    worker-lib/python/crun/py.typed)

# CUDA code is compiled if there is a CUDA toolkit; NCCL is loaded at run time. CUDA=no ignores
# the toolkit.
cuda_src := $(call layer_sources,worker-lib,cu)
train_cuda_src := $(call layer_sources,worker-lib/train,cu)

packages := libevent_extra libevent_core libevent_pthreads libcjson zlib
headers := stdio.h event2/event.h cjson/cJSON.h zlib.h openssl/ssl.h xxhash.h

# -- machinery -------------------------------------------------------------------------

PREFIX ?= /usr/local
override PREFIX := $(abspath $(patsubst ~/%,$(HOME)/%,$(PREFIX)))
CC ?= gcc
# makes one object of several
LD_R ?= $(CC) -r -nostdlib
OBJCOPY ?= objcopy
V ?= 0
T ?=
CUDA ?= auto
# code for A100 and H100, and for Blackwell if nvcc knows it; for others the driver compiles it
CUDA_ARCH ?= -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90a,code=sm_90a \
    $(foreach a,$(filter 100 120,$(patsubst sm_%,%,$(shell \
    $(cuda_home)/bin/nvcc --list-gpu-code))),-gencode arch=compute_$a,code=sm_$a)
SAN ?=
B ?= build$(if $(filter emulated,$(CUDA)),-emulated)$(addprefix -,$(SAN))

# all cores, unless -j says how many
ifeq (0,$(MAKELEVEL))
MAKEFLAGS += -j$(shell nproc)
endif

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
comma := ,
hash := \#
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-5s %s\n' $1 $2)

pc_cflags := $(shell pkg-config --cflags $(packages) 2>/dev/null)
pc_libs := $(shell pkg-config --libs $(packages) 2>/dev/null)
# what is missing is said in one line, before a compiler says it in many
ifneq ($(filter-out clean lint mutants uninstall,$(or $(MAKECMDGOALS),all)),)
can_build := $(and $(pc_libs),$(shell printf '$(hash)include <%s>\n' $(headers) | \
    $(CC) $(pc_cflags) -E -x c - > /dev/null 2>&1 && echo yes))
missing := $(if $(can_build),,$(shell CC='$(CC)' scripts/setup --missing))
$(if $(missing),$(error $(missing)))
endif

# snprintf truncates on purpose: texts for people are bounded
warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror \
            -Wno-unused-parameter -Wno-format-truncation -Wno-unknown-warning-option
# what the compiler has of it
cc_takes = $(shell $(CC) -Werror $1 -x c -c -o /dev/null /dev/null 2>/dev/null && echo '$1')
fortify := $(or $(shell echo 'int f(char *p) { return __builtin_dynamic_object_size(p, 0); }' | \
    $(CC) -Werror -x c -c -o /dev/null - 2>/dev/null && echo 3),2)
hardening := -fstack-protector-strong -fPIC $(call cc_takes,-fcf-protection) \
             $(call cc_takes,-fstack-clash-protection) $(if $(SAN),,-D_FORTIFY_SOURCE=$(fortify))
san_asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# gcc warns that it does not see fences
san_tsan := -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan
san := $(san_$(SAN))
# The shared one has 6 MiB that each process that ends reads in search of leaks.
san_static := $(if $(filter asan,$(SAN)),$(if $(filter /%,$(shell \
    $(CC) -print-file-name=libubsan.a)),$(call cc_takes,-static-libubsan)))
OPT ?= $(if $(SAN),-O1,-O2) -g

# -- the CUDA toolkit, if there is one
emulated := $(filter emulated,$(CUDA))
cuda_homes := $(if $(filter no emulated,$(CUDA)),,$(CUDA_HOME) $(patsubst %/bin/nvcc,%,$(shell \
    command -v nvcc 2>/dev/null)) $(wildcard /usr/local/cuda /usr/local/cuda-*))
# the static runtime, so that programs also start on machines without CUDA
cuda_home := $(firstword $(foreach h,$(cuda_homes),$(if $(and $(wildcard $h/bin/nvcc),$(wildcard \
    $h/include/cuda_runtime.h),$(wildcard $h/lib64/libcudart_static.a)),$h)))
nccl_header := $(if $(cuda_home),$(firstword $(wildcard $(cuda_home)/include/nccl.h \
    /usr/local/include/nccl.h /usr/include/nccl.h)))
cuda_libs := $(if $(cuda_home),$(cuda_home)/lib64/libcudart_static.a)
# the emulated GPU is one library, which programs share with the stand-in for NCCL
emulated_lib := $(if $(emulated),$B/lib/libcuda-emulated.so)
emulated_libs := $(if $(emulated),$(emulated_lib) -lstdc++ \
    -Wl$(comma)--disable-new-dtags$(comma)-rpath$(comma)'$$ORIGIN/../lib')
no_gpu_parts := $(if $(filter no,$(CUDA)),(CUDA=no),(no CUDA toolkit: nvcc and libcudart_static.a))
gpu_parts := $(if $(emulated),an emulated GPU,$(if $(cuda_home),CUDA of $(cuda_home)$(if \
    $(nccl_header),$(comma) $(nccl_header)),none $(no_gpu_parts)))
# no C++ library at run time
cuda_plain := -fno-exceptions,-fno-rtti,-fno-threadsafe-statics
nvcc_flags = -std=c++17 -O3 -g -I. -Iworker-lib -DCRUN_CUDA -fmad=false $(CUDA_ARCH) \
    -Xcompiler -fPIC,-Wall,-Wextra,-Wno-unused-parameter,$(cuda_plain) -Werror all-warnings
# crund locks itself in with it, if it is here
seccomp_cflags := $(shell pkg-config --exists libseccomp 2>/dev/null && \
    echo -DCRUN_SECCOMP $$(pkg-config --cflags libseccomp))
seccomp_libs := $(if $(seccomp_cflags),$(shell pkg-config --libs libseccomp))
# the nodes of a job keep the rendezvous' records with it, if it is here
raft_cflags := $(shell pkg-config --exists raft 2>/dev/null && \
    echo -DCRUN_RAFT $$(pkg-config --cflags raft))

all_cflags = -std=gnu11 -D_GNU_SOURCE -I. -Iworker-lib $(warnings) $(hardening) $(OPT) $(san) \
             -pthread -MMD -MP $(pc_cflags) $(CFLAGS) \
             $(if $(cuda_home),-DCRUN_CUDA -isystem $(cuda_home)/include) \
             $(if $(emulated),-DCRUN_CUDA -DCRUN_EMULATED -Itests/fakes/cuda)
# unused libraries are not linked: loading libraries dominates the start of a program
all_ldflags = $(san) $(san_static) -pthread -Wl,--as-needed,-z,relro,-z,now $(LDFLAGS)

# the archive of layer rendezvous/common/base is build/lib/librendezvous-common-base.a
archive = $B/lib/lib$(subst /,-,$1).a
objects = $(patsubst %.c,$B/obj/%.o,$(patsubst %.cc,$B/obj/%.o,$(patsubst %.cu,$B/obj/%.o,$1)))
archives := $(foreach l,$(layers),$(call archive,$l))
# The static archive of library $1, if there is one: in pkg-config's folder of that library,
# else in one of the compiler's.
pc_folders := $(patsubst -L%,%,$(filter -L%,$(pc_libs)))
pc_file = $(firstword $(foreach d,$(pc_folders),$(wildcard $d/lib$1.a $d/lib$1.so)))
archive_of = $(filter %.a,$(or $(call pc_file,$1),$(filter /%,$(shell \
    $(CC) -print-file-name=lib$1.a))))
# A launch executes crun twice, and each shared library costs 0.05 ms to find, map and link: it
# links these statically if their archives exist.
along = $(or $(call archive_of,$(l:-l%=%)),$l)
$B/obj/rendezvous/server/confinement.o: all_cflags += $(seccomp_cflags)
$B/obj/rendezvous/job/records/r%.o: all_cflags += $(raft_cflags)
raft_libs := $(if $(raft_cflags),$(or $(call archive_of,raft),$(shell pkg-config --libs raft)))
statically = $(foreach l,$(pc_libs),$(if $(filter $1,$l),$(along),$l))
$B/bin/crun: pc_libs := $(call statically,-levent_extra -levent_core -lz -lcjson)
# both or none of them: evhttp knows the inside of the core of its own version alone
$B/bin/crund: pc_libs := $(call statically,-levent_extra -levent_core)
link_libs = -Wl,--start-group $(filter-out $(helpers),$(filter %.a,$^)) -Wl,--end-group \
    $(cuda_libs) $(emulated_libs) $(pc_libs) $(raft_libs) -ldl -lm

binaries := $(addprefix $B/bin/,$(installed))
.PHONY: all lint install uninstall clean
worker_libs := $B/lib/lib$(worker_lib).so.0 $B/lib/lib$(worker_lib).a
python_built := $(addprefix $B/lib/crun/python/,$(python_files))
all: $(binaries) $(worker_libs) $(python_built)

define layer_rules
$(call archive,$1): $(call objects,$(call layer_sources,$1,c))
endef
$(foreach l,$(layers),$(eval $(call layer_rules,$l)))

# said when it changes; objects that depend on the toolkit are then rebuilt
said = $(shell mkdir -p $B; echo '$2' | cmp -s - $B/$1 || \
    { echo '$2' > $B/$1$(if $2,; echo '$2' >&2); })
$(call said,gpu-parts,GPU parts: $(gpu_parts))
$(call said,left-out-seccomp,$(if $(seccomp_cflags),,system call filter of crund left out: \
    libseccomp is missing (libseccomp-dev$(comma) Fedora: libseccomp-devel)))
$(call said,left-out-raft,$(if $(raft_cflags),,replicas of the rendezvous left out: libraft \
    is missing (libraft-dev)))
$(call objects,$(call sources,worker-lib,c)): $B/gpu-parts
ifneq ($(cuda_home)$(emulated),)
cuda_objects := $(call objects,$(cuda_src))
$(call archive,worker-lib): $(cuda_objects)
$(call archive,worker-lib/train): $(call objects,$(train_cuda_src))
endif
$B/obj/%.o: %.cu $B/gpu-parts
	@mkdir -p $(@D)
	$(call say,$(if $(emulated),C++,NVCC),$<)
	$(Q)$(if $(emulated),$(CXX) -x c++ $(emulated_flags) $(kernel_flags), \
	    $(cuda_home)/bin/nvcc $(nvcc_flags)) -MMD -MP -c -o $@ $<

ifneq ($(nccl_header),)
$B/obj/worker-lib/backends/nccl/nccl_check.o: pc_cflags += -DCRUN_NCCL_HEADER \
    $(foreach d,$(dir $(nccl_header)) $(cuda_home)/include/,-isystem $d)
endif

define program_rules
$B/bin/$1: $(call objects,$($1_src)) $(foreach l,$(or $($1_layers),$(layers)),$(call archive,$l))
$B/bin/$1: all_ldflags += $($1_ldflags)
endef
$(foreach p,$(installed),$(eval $(call program_rules,$p)))

define make_archive
	@mkdir -p $(@D)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)
endef
$(archives):
	$(make_archive)

define link_program
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(all_ldflags) -o $@.new $(filter %.o,$^) $(link_libs) $($(@F)_ldlibs)
	$(Q)mv $@.new $@
endef
$(binaries):
	$(link_program)

# One object that exports crun_* only: a program that links it may have its own err_set.
$B/obj/$(worker_lib).o: $(call objects,$(call layer_sources,worker-lib,c)) $(cuda_objects) \
    $(cuda_libs) $(foreach l,$(worker_lib_layers),$(call archive,$l))
	$(call say,LINK,$@)
	$(Q)$(LD_R) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(filter %.a,$^)
	$(Q)$(OBJCOPY) --wildcard --keep-global-symbol='crun_*' $@

$B/lib/lib$(worker_lib).a: $B/obj/$(worker_lib).o
	$(make_archive)

# static archives where there are some: fewer libraries are needed at run time
worker_lib_link = $(pc_folders:%=-L%) $(foreach l,$(worker_lib_needs),$(or $(if \
    $(filter-out m pthread,$l),$(call archive_of,$l)),-l$l))

$B/lib/lib$(worker_lib).so.0: $B/obj/$(worker_lib).o worker-lib/$(worker_lib).map
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) $(all_ldflags) -o $@ $< \
	    -Wl,--version-script=worker-lib/$(worker_lib).map \
	    $(worker_lib_link) $(emulated_libs)

$(python_built): $B/lib/crun/python/%: worker-lib/python/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

# numeric loops are optimized more
$B/obj/worker-lib/train/%.o: OPT := $(if $(SAN),-O1,-O3) -g
# products of numbers are 40 times as slow with a sanitizer
ifneq ($(SAN),)
$B/obj/worker-lib/train/matrix.o: all_cflags += -O3
$B/obj/worker-lib/train/matrix.o: san :=
endif

# Vectorized, without fused operations or reordering: the same bits on every machine.
numeric := worker-lib/compute/optim_kernels.c
$(call objects,$(numeric)): OPT += -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math

# which commit it is of, also in an archive that git has made; one small object knows it
commit := $(shell { [ -e .git ] && git log -1 --abbrev=8 --format='%h, %cs' 2> /dev/null; } || \
    grep -v Format rendezvous/wire/protocol/commit)
$(shell mkdir -p $B; echo '$(commit)' | cmp -s - $B/commit || echo '$(commit)' > $B/commit)
software_object := $(call objects,rendezvous/wire/protocol/own_build.c)
$(software_object): $B/commit
$(software_object): all_cflags += -DCRUN_BUILD='"$(if $(commit), ($(commit)))"' \
    -DCRUN_COMMIT='"$(if $(commit), ($(subst $(comma),,$(firstword $(commit)))))"'

$B/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(all_cflags) -c -o $@ $<

# the page, as strings of C
page_assets := $(patsubst %,$B/obj/%.inc,$(wildcard $(addprefix rendezvous/show/web/*.,html css js)))
$(page_assets): $B/obj/%.inc: %
	@mkdir -p $(@D)
	$(Q)sed -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $< > $@
$B/obj/rendezvous/show/web/page.o: $(page_assets)
$B/obj/rendezvous/show/web/page.o: all_cflags += -I$B/obj

# one file per vector width, chosen at run time; a loop that clang cannot vectorize under
# instrumentation is slow, not wrong
reduce := $B/obj/worker-lib/compute/reduce
$(call objects,$(wildcard worker-lib/compute/reduce*.c)): all_cflags += -O3 -ffp-contract=off \
    -Wno-pass-failed
ifneq ($(filter x86_64%,$(shell $(CC) -dumpmachine)),)
$(reduce)_avx2.o: all_cflags += -mavx2 -mf16c
$(reduce)_avx512.o: all_cflags += -mavx512f -mavx512bw -mavx512vl -mf16c
$B/obj/worker-lib/checkpoint/memory_copy_avx2.o: all_cflags += -mavx2
endif

lint:
	$(Q)scripts/checks/commits && scripts/checks/layers && scripts/checks/words && \
	    scripts/checks/names --figures && scripts/checks/format

installer = B='$B' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' CRUN='$(CRUN)' \
    CRUN_ANYWAY='$(CRUN_ANYWAY)' NEEDS='$(addprefix -l,$(worker_lib_needs))' scripts/install
install: all
	$(Q)$(installer) $(installed)
uninstall:
	$(Q)$(installer) --remove $(installed)

clean:
	rm -rf build build-*

include tests/tests.mk
-include $(shell find $B/obj -name '*.d' 2>/dev/null)
