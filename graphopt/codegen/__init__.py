"""From edge and vertex types to bytecode.

workspace   where compiling happens
trace       calls the user's functions with symbols
edge        which outputs an edge's programs have
rewrites    what is done to expressions, and what each rewrite is worth
lower       expression graph -> instructions
blocks      sums of products that share factors
order       few live registers
allocate    registers
bytecode    the instruction set: encoding, printing, reference interpreter
program     the compiled function
cache       compiled functions on disk
serialize   programs as bytes
assignment  programs in single assignment form, for text
glsl        statements of GLSL
gpu         compute kernels
builtin     compiled functions of the built-in types, part of the package (made by prebuild)
"""

from graphopt.codegen.bytecode import INSTRUCTIONS, OPCODE, Instruction
from graphopt.codegen.edge import (
    INFORMATION_VARIANTS,
    EdgeKernels,
    compile_edge,
    compile_errors,
    compile_robust_kernel,
    compile_vertex,
    explain_rewrites,
    information_columns,
    information_dim,
    pack_information,
)
from graphopt.codegen.program import Program, build_program, sampled_planes, sampled_runs

__all__ = [
    "INFORMATION_VARIANTS",
    "INSTRUCTIONS",
    "OPCODE",
    "EdgeKernels",
    "Instruction",
    "Program",
    "build_program",
    "compile_edge",
    "compile_errors",
    "compile_robust_kernel",
    "compile_vertex",
    "explain_rewrites",
    "information_columns",
    "information_dim",
    "pack_information",
    "sampled_planes",
    "sampled_runs",
]
