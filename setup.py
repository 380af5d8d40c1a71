"""Builds the kernel, if there is a C++ compiler; without one the package installs all the same and torch serves.

Everything else about the package is in pyproject.toml. The library has a plain C interface and is loaded with ctypes,
so it needs neither torch nor Python headers. Each instruction set has its own flags and is chosen at run time.
"""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

VARIANTS = {"csrc/kernels_portable.cpp": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    VARIANTS["csrc/kernels_avx2.cpp"] = ["-mavx2", "-mfma"]
    VARIANTS["csrc/kernels_avx512.cpp"] = ["-mavx2", "-mfma", "-mavx512f", "-mavx512dq", "-mavx512vl"]
FLAGS = ["-std=c++17", "-O3", "-g0", "-fno-math-errno", "-fvisibility=default"]


class BuildKernels(build_ext):
    """Compile every variant with its own flags; on any failure say so and go on without."""

    def build_extension(self, ext):
        """Build the library, with OpenMP if the compiler has it."""
        for openmp in (["-fopenmp"], []):
            try:
                self._build(ext, openmp)
                return
            except Exception as error:
                print(f"torchcaps: kernel not built with {openmp or 'no OpenMP'}: {error}", file=sys.stderr)
        print("torchcaps: installed without its kernel; routing runs in torch.", file=sys.stderr)

    def _build(self, ext, openmp):
        macros = [("TORCHCAPS_X86", "1")] if len(VARIANTS) > 1 else []

        def build(source, flags):
            options = [*FLAGS, *openmp, *flags]
            return self.compiler.compile([source], output_dir=self.build_temp, macros=macros, extra_postargs=options)

        sources = {**VARIANTS, "csrc/entries.cpp": []}
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # a variant takes most of a minute
            objects = [one for objects in pool.map(build, *zip(*sources.items(), strict=True)) for one in objects]
        # On Linux the OpenMP runtime is not linked in: torchcaps/ops/backends/library.py makes it use torch's own. Two
        # runtimes with a pool of threads each would keep each other from the processor.
        link = [] if sys.platform == "linux" else openmp
        self.compiler.link_shared_object(
            objects, self.get_ext_fullpath(ext.name), extra_postargs=link, target_lang="c++"
        )

    def copy_extensions_to_source(self):
        """An editable install copies the library beside the package, if there is one to copy."""
        self.extensions = [ext for ext in self.extensions if self._exists(ext)]
        super().copy_extensions_to_source()

    def _exists(self, ext):
        built = Path(self.build_lib) / self.get_ext_filename(ext.name)
        return built.exists() or Path(self.get_ext_fullpath(ext.name)).exists()


depends = [*map(str, Path("csrc").rglob("*.h")), *VARIANTS]
setup(
    ext_modules=[Extension("torchcaps._native", ["csrc/entries.cpp"], depends=depends)],
    cmdclass={"build_ext": BuildKernels},
)
