# SPDX-License-Identifier: MIT
"""For Spack: spack repo add scripts/packaging/spack; then, in the folder with a release's source
archive, spack install -n crun-launcher (-n: sums stand in its SHA256SUMS)"""
import os

from spack.package import *

try:
    from spack_repo.builtin.build_systems.makefile import MakefilePackage
except ImportError:
    pass  # Spack before 1.0 has it in spack.package


class CrunLauncher(MakefilePackage):
    """torchrun in C: launches distributed training on one or many machines and keeps it alive."""

    license("MIT")
    manual_download = True
    url = f"file://{os.getcwd()}/crun-launcher-1.0.0.tar.gz"
    version("1.0.0")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python", type=("build", "run"))
    depends_on("libevent")
    depends_on("cjson")
    depends_on("zlib-api")
    depends_on("openssl")
    depends_on("xxhash", type="build")
    depends_on("libseccomp")
    conflicts("platform=darwin")
    conflicts("platform=windows")

    build_targets = ["CUDA=no", "all"]

    def edit(self, spec, prefix):
        pass

    @property
    def install_targets(self):
        # the container runtime of this name is another package, with a prefix of its own
        return ["CUDA=no", f"PREFIX={self.prefix}", "CRUN_ANYWAY=1", "install"]
