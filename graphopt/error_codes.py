"""Causes of errors: a code, what it means and what to do; `graphopt explain E301` prints one.

An error belongs to the first cause that names its class, or one it derives from, and whose words are in
its message.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple


class Cause(NamedTuple):
    """One row."""

    code: str
    errors: str
    """Names of the classes."""
    words: str
    """What the message must contain (regular expression); empty: any message."""
    title: str
    fix: str
    example: str
    """A message, shortened."""


CAUSES = tuple(Cause(*row) for row in (
    ("E101", "UnknownOptionError", "", "No option has this name",
     "The message lists the names, the nearest first; older spellings are in the changelog.",
     "optimize has no option 'iterations'. Did you mean 'max_iterations'?"),
    ("E102", "PluginError", "", "Something that another package or your program registered is broken",
     "Update or uninstall the package that the message names, or correct the registered function.",
     "The algorithm 'mine' of package x cannot be imported: ModuleNotFoundError. Repair that package."),
    ("E103", "OptionError SymbolicError", "pip install|not installed|needs the package|cannot be imported",
     "An optional package is missing", "Run the pip command of the message.",
     "bags need rosbags: pip install graphopt[ros]."),
    ("E104", "OptionError",
     "expected (one|some) of|unknown|Known:|Did you mean|no data set|no sequence|any of",
     "A name is none of those that exist",
     "Take one of the names in the message; graphopt COMMAND --help lists them too.",
     "method is 'levenberg', expected one of auto, lm, gn, dogleg."),
    ("E105", "OptionError",
     "no such (file|folder)|is a file|no folder|does not exist|exists and is not empty",
     "An option names a file or folder that cannot be used",
     "Check the path, relative to the working directory.", "a.json: no such file."),
    ("E106", "OptionError",
     r"must (be|ascend|end)|expected (a |an )?(number|whole|finite|factor|positive|> |>=|\d|three)|"
     "give a|above max", "A value is out of its range", "The message says the range and the unit.",
     "max_iterations is -3, must be >= 0."),
    ("E107", "OptionError", r"has shape|have shape|expected \(",
     "An array in an option has the wrong shape", "Pass an array of the shape in the message.",
     "points has shape (3,), expected (n, 3)."),
    ("E108", "OptionError",
     "written as|written to|suffix|is saved as|files? (are|have)|the format|name must end",
     "The file name asks for what its format cannot hold", "Take the suffix that the message names.",
     "out.txt: problems are written as .vib."),
    ("E109", "OptionError",
     "needs|without|together|Leave|leave|is for|are for|at once|only|not for|instead|Use ",
     "Options contradict each other, or the problem lacks what one needs",
     "Take one of the options away, or add what the message names.",
     "schur='implicit' needs linear_solver='pcg': Cholesky needs the matrix."),
    ("E110", "OptionError",
     "the model has no|the map has no|has no such|the graph has no|took no part|no covariance",
     "An id or name is not in the model", "List the ids of the model (graphopt info FILE).",
     "the config names image 9, but the model has no such image."),
    ("E111", "OptionError", "expected|is a |are a |got ", "An option has the wrong type",
     "Pass what the message expects.", "options is 3, expected SolveOptions(...)."),
    ("E100", "OptionError", "", "An option has a value that cannot work",
     "The message says which and what to do.", "A trajectory is empty, there is nothing to compare."),
    ("E201", "ShapeError", "is not the derivative", "A Jacobian is not the derivative of its residual",
     "Correct the column that the message names, or leave the Jacobian out: it is derived.",
     "EDGE_RANGE is not the derivative of its residual: column 2 of block 0 ..."),
    ("E202", "ShapeError",
     "^(the )?residual of|kernel .* (returned|cannot)|cannot be called with|changes its argument|"
     r"linearize returned|returns (block )?\d", "A function of yours returns something of the wrong shape",
     "Return one array of residual_dim numbers: np.stack([...]).",
     "residual of edge type RANGE returned shape (2, 1), expected (residual_dim,)."),
    ("E203", "ShapeError", "requires gradients", "A tensor that requires gradients cannot be stored",
     "Pass tensor.detach(), or use graphopt.torch to differentiate the optimum.",
     "measurements: the tensor requires gradients, which a graph does not record. Pass tensor.detach()."),
    ("E204", "ShapeError", r"dtype|float64|float32|integers|hold .* numbers|of type|real ones|bool|code \d",
     "An array holds the wrong kind of numbers",
     "Ids are int64, flags bool, all else float64: convert before.",
     "VERTEX_SE2 ids must be integers of 64 bits, got an array of float32."),
    ("E205", "ShapeError", "NaN|not finite|finite", "An array holds NaN or infinity",
     "Leave out or repair the rows in the message.", "weights hold a number that is not finite."),
    ("E206", "ShapeError", "shape", "An array has the wrong shape",
     "Rows are elements: estimates (n, storage_dim), measurements (m, d), information (m, r, r), "
     "vertices (m, arity).", "EDGE_SE2 measurements have shape (1, 2), expected (1, 3)."),
    ("E207", "ShapeError", r"one (each|per)|expected \d+|got \d+|joins \d+|number of edges|symbols",
     "Counts do not match", "Pass one entry per element that the message counts.",
     "EDGE_SE2: 2 measurements for 3 edges, expected one each."),
    ("E200", "ShapeError", "", "An array does not fit",
     "The message says which array and what was expected.", "Texture got grey of 3 axes."),
    ("E301", "UnknownIdError", "", "No vertex, edge or parameter has this id",
     "graph.vertex_set(tag).ids lists ids; add the element before using it.",
     "There is no vertex 77 in this graph of 3 vertices."),
    ("E302", "GraphError",
     r"names vertex \d+, which|names vertices|needs a .* with id|no .* has this id|not in the graph",
     "An edge names a vertex or parameter that is not there",
     "Add vertices before edges; check that ids were not swapped with rows or with another table's " "ids.",
     "EDGE_SE2 of row 0 (vertices 3, 4) names vertex 4, which is not in the graph."),
    ("E303", "GraphError", r"exists already|given twice|has a vertex \d+ already|is taken",
     "An id is used twice", "Ids are unique over all vertex types: give landmarks an offset.",
     "VERTEX_SE2 of row 0: vertex 3 exists already."),
    ("E304", "GraphError", r"twice \(slots|different vertices|same vertex",
     "An edge joins a vertex with itself", "Correct the ids, or define an edge on one vertex.",
     "EDGE_SE2 of row 0 names vertex 1 twice (slots 0 and 1)."),
    ("E305", "GraphError", r"in slot \d+ is a|expected an? (Vertex|Edge)|slot \d+ takes|vertex \d+ is a",
     "A vertex has another type than the edge takes",
     "Check the order of the ids: pose first, then landmark.",
     "EDGE_SE2_XY of row 0 (vertices 10, 1): vertex 10 in slot 0 is a VERTEX_XY, expected a "
     "VERTEX_SE2."),
    ("E306", "GraphError", "not symmetric", "An information matrix is not symmetric",
     "Pass (m, r, r): the inverse of the covariance, both triangles filled.",
     "EDGE_SE2 information of row 0 (vertices 1, 3) is not symmetric (largest difference 0.5)."),
    ("E307", "GraphError", "quaternion", "A quaternion is no rotation",
     "Quaternions are qx, qy, qz, qw of length 1, w last; start from (0, 0, 0, 1).",
     "VERTEX_SE3:QUAT estimate of row 0 (id 1) has the quaternion [0, 0, 0, 0], which is no rotation."),
    ("E308", "GraphError", "finite|NaN|does not fit|holds nan", "A number is NaN, infinite or too large",
     "Repair or leave out the row; where a measurement is missing, add no edge.",
     "VERTEX_SE2 estimate of row 1 (id 2) holds nan; every number must be finite."),
    ("E309", "GraphError", "nothing to optimize", "There is nothing to optimize",
     "Add edges at the level that is optimized, and leave a vertex of them free.",
     "There is nothing to optimize: no active edge has a vertex that is not fixed."),
    ("E310", "GraphError", "no component|bound|fixed in component|inequalit|constraint",
     "Bounds do not fit",
     "Name components of the estimate from 0 on; lower below upper; none for fixed vertices.",
     "VERTEX_XY 4: the lower bound 2 of component 0 is above the upper bound 1."),
    ("E311", "GraphError",
     "is fixed or has no active edge|no covariance|no Hessian|was not in the graph at",
     "A vertex that takes no part has no such result",
     "Ask for free vertices with active edges, after optimizing.",
     "Vertex 0 is fixed or has no active edge: it has no covariance."),
    ("E312", "GraphError", "has no .* of type|no parameters of type|graph has no|graph has edges",
     "The graph has no elements of this type", "Take one of the types in the message.",
     "This graph has no vertices of type VERTEX_XY; it has VERTEX_SE2."),
    ("E313", "GraphError", "grid|offset|stencil|index holds|accesses|image|slots",
     "Accesses to a grid do not fit", "One access per slot, inside the grid, of its type.",
     "index holds 0 to 9, Grid(...) has 5 vertices."),
    ("E314", "GraphError", "being optimized|while it is optimized", "The graph is in use",
     "Wait for the other call, or optimize graph.copy().",
     "This graph is being optimized by another thread."),
    ("E315", "GraphError", "does not|do not|cannot|has no|have no|needs|leave it out|only|evaluated",
     "A type of element is not taken here", "Use the function or option that the message names.",
     "optimize_batch does not take graphs with computed values (`add_computed`)."),
    ("E300", "GraphError", "", "The graph is inconsistent",
     "graph.check() and graphopt info FILE list what is wrong.",
     "This snapshot was taken of another Online."),
    ("E401", "TypeRegistryError", "is called|not registered", "No type has this name",
     "Correct the tag, or import the module that defines it; graphopt.types.registry lists all.",
     "no vertex type is called 'VERTEX_SE4'. Did you mean VERTEX_SE3?"),
    ("E402", "TypeRegistryError", "is taken|of g2o", "A name is taken", "Choose another tag.",
     "the name 'EDGE_SE2' is taken. Choose another tag or name."),
    ("E403", "TypeRegistryError", "pickle", "A pickle needs a type that is not here, or has changed",
     "Import the module that defines it before loading.",
     "A pickle needs the edge EDGE_X, which this process does not know."),
    ("E400", "TypeRegistryError", "", "A type is used in the wrong way",
     "Pass the decorated type, or its tag.", "'f' is a function, expected a vertex type or its name."),
    ("E501", "FormatError", "empty|only comments", "The file is empty", "Copy or write it again.",
     "a.g2o:1: the file is empty"),
    ("E502", "FormatError",
     "truncated|damaged|cut off|ends (in|before)|copy the file|cannot stand in|bytes follow|"
     "unpack|missing", "The file is cut off or damaged",
     "Copy it again; compare its size with the original's.",
     "a.npz: damaged or truncated .npz archive (File is not a zip file)"),
    ("E509", "FormatError",
     "no place|cannot be written|can be (read but not )?written|no line for|cannot hold|has no tag",
     "The format cannot hold this graph", "Write .g2o or .npz, or pickle the graph.",
     "iSAM's format has no line for EDGE_SE3_PRIOR. Write a .g2o instead."),
    ("E503", "FormatError",
     "does not exist|is used twice|have id|named? twice|not in the|stands on two|joins vertex|" "is in two",
     "Ids in the file contradict each other", "Correct the line that the message names.",
     "a.g2o:3: EDGE_SE2: vertex 9 does not exist"),
    ("E504", "FormatError",
     "not a known format|no known format|names no format|known tag|no TUM|no graph|HDF5|UTF-16|"
     "expected a", "The format is not recognized",
     "Pass format=NAME, correct the suffix, or convert it: graphopt convert.",
     "out.xyz: the suffix names no format; use one of .g2o, .npz, ... or pass format="),
    ("E505", "FormatError", "tokens|numbers|not a number|integer|columns|negative|count",
     "A line has the wrong numbers",
     "Compare the line with docs/formats.md; a wrong dialect is corrected by --dialect.",
     "a.g2o:3: EDGE_SE2: got 10 tokens, expected 12 (EDGE_SE2, 2 vertex ids, 9 numbers)."),
    ("E506", "FormatError", "finite|quaternion|rotation|singular|definite|sigmas|beyond|pose",
     "A value in the file is impossible",
     "Repair what wrote the file: NaN, a zero quaternion, a singular covariance.",
     "a.g2o:1: VERTEX_SE3:QUAT: the quaternion [0, 0, 0, 0] has no direction"),
    ("E507", "FormatError", "checkpoint", "The checkpoint is of another graph",
     "Resume with the graph that it was made of.", "a.npz: the checkpoint has 5 vertices, the graph 7."),
    ("E508", "FormatError", "version|newer|layout", "The file is of a newer version", "Update graphopt.",
     "layout 9, expected 1 to 4: of a newer graphopt?"),
    ("E500", "FormatError", "", "The file does not follow its format", "The message names file and line.",
     "a.out:1: expected '# Bundle file' in the first line"),
    ("E510", "DownloadError", "", "A download failed",
     "Try again; it goes on where it stopped. Check proxy and disk.", "URL: timed out"),
    ("E511", "FileNotFoundError", "", "A file or folder does not exist",
     "Check the path, relative to the working directory.", "a.g2o: No such file or directory."),
    ("E512", "IsADirectoryError NotADirectoryError", "",
     "A folder stands where a file is expected, or the reverse", "Name the file in it.",
     "data: Is a directory."),
    ("E513", "PermissionError", "", "The file may not be read or written", "Check its owner and mode.",
     "a.g2o: Permission denied."),
    ("E514", "OSError", "", "The system refused a file operation", "Free disk space, or check the mount.",
     "a.g2o: No space left on device."),
    ("E521", "CameraError", "", "A camera's calibration is impossible",
     "Lengths in metres, focal lengths in pixels, body_T_cam as x, y, z, qx, qy, qz, qw.",
     "Camera.body_T_cam: its quaternion has length 0.7, expected 1."),
    ("E522", "MapError", "", "A map's table would be inconsistent",
     "The message names table, row and what was expected.",
     "stamps have shape (3,) and type float64, expected (3,) int64 nanoseconds."),
    ("E523", "SequenceError ImuDataError", "", "A recording cannot be read",
     "Check the layout that the message expects, and --modes.",
     "room1: has 1 camera, a stereo mode needs two. Choose --modes mono."),
    ("E524", "TrajectoryError", "", "A trajectory cannot be fitted", "Stamps ascend, without long pauses.",
     "stamps do not ascend"),
    ("E606", "ExpressionError", "", "A text is no expression", "See the place marked by ^.",
     "Expression 3: expected a number, got ')'."),
    ("E601", "SymbolicError", "truth value",
     "A residual function asks for a symbol's truth value (if, while, and, min, max)",
     "np.where(condition, a, b), np.minimum, np.maximum; conditions with & and |.",
     "A symbol has no truth value yet: Python's if ... cannot look at it."),
    ("E602", "SymbolicError", "Python|one number|unpacked",
     "A residual function needs a number where it has a symbol",
     "np.sin, not math.sin; no float(); loops over range(n).",
     "A symbol has no value yet, so it cannot become a Python float."),
    ("E603", "SymbolicError", "NaN", "A residual function is NaN",
     "Guard the argument, not only the result: y = np.where(x > 0, x, 1); np.where(x > 0, np.sqrt(y), "
     "0).", "residual of EDGE_X is NaN in component 0 whatever its arguments are."),
    ("E604", "SymbolicError", "returns|returned|components|expected",
     "A residual function returns something else than an array of numbers",
     "np.stack([...], axis=-1) of scalars, np.concatenate of vectors.",
     "residual of EDGE_X returns an array of shape (2, 1), expected (2,)."),
    ("E605", "SymbolicError", "differs from one call",
     "A residual function is not the same from call to call",
     "No random numbers, no state: pass them as measurement.",
     "component 0 differs from one call to the next."),
    ("E600", "SymbolicError", "", "A residual function uses an operation that cannot be compiled",
     "Write it with numpy functions of the table in docs/types.md, or evaluate the edge outside.",
     "np.cross on symbols works along the last axis."),
    ("E701", "GradientError", "", "The optimum has no derivative that can be trusted",
     "Fix the gauge, remove constraints, converge further (more iterations).",
     "Gauss-Newton's H is not definite."),
    ("E702", "SolverError", "MiB|memory|4 GiB", "The linear system does not fit into memory",
     "linear_solver='pcg', or mark landmarks as marginalized.",
     "The factor takes 90,000 MiB; 20,000 MiB are available. Use linear_solver='pcg'."),
    ("E703", "SolverError", "certificate|kkt", "There is no certificate",
     "Ask right after optimize, in its process, before changing the graph.",
     "There is no certificate: the graph that was optimized is gone."),
    ("E704", "SolverError", "singular|definite|covariance|direction|ill-conditioned",
     "H is singular: something is undetermined",
     "Fix a vertex of each part (gauge), add a prior, or remove what is seen too rarely; "
     "graph.check() says which.",
     "H is singular, so there are no covariances. Fix a vertex or add a prior."),
    ("E700", "SolverError", "", "The optimizer failed",
     "The estimate is the last good one; summary.message says where.",
     "An error, a Jacobian or a step became NaN or infinite; the last finite estimate is kept."),
    ("E801", "DeviceMemoryError", "", "The device has too little memory",
     "schur='implicit', precision='mixed', several devices, or device='cpu'.",
     "The device has 2,000 MiB, the factor takes 4,000 MiB."),
    ("E802", "DeviceLimitError", "", "The problem is larger than the device's kernels count",
     "linear_solver='pcg', schur='implicit', or device='cpu'.",
     "H has 5e9 scalars; queues count to 4294967294."),
    ("E803", "DeviceLostError", "", "The device was lost",
     "The estimate is kept: go on with device='cpu', or call again.",
     "The device was lost while running linearize."),
    ("E804", "ShaderError", "", "A shader cannot be compiled",
     "Install glslangValidator, or a wheel with it.",
     "Kernel 'linearize' is generated and needs a GLSL compiler."),
    ("E805", "DeviceError", "No Vulkan|without Vulkan|needs the package", "No GPU can be used",
     "graphopt devices --why names what is missing and the line that adds it.",
     "No Vulkan 1.2 device was found. Install the GPU's driver, or use device='cpu'."),
    ("E806", "DeviceError", r"no device|is unknown|does not exist|names \d+", "No device has this name",
     "graphopt devices lists names; GPUs of all makers are vulkan, vulkan:1, ...",
     "There is no device 'gpu' here; this installation can optimize on: cpu, vulkan, kompute."),
    ("E807", "DeviceError", "no float64", "The device has no float64",
     "precision='mixed' or 'auto'; arrays in float32.",
     "Apple M1 has no float64. Use precision='mixed' or 'auto'."),
    ("E808", "DeviceError", "for GPUs|on the CPU|evaluated (by|elsewhere)", "The device does not do this",
     "Take the device or option in the message.",
     "precision 'mixed' is for GPUs; the CPU computes in double."),
    ("E810", "DeviceError", "no memory is shared", "CUDA does not see the device",
     "Leave device out of graphopt.empty, for memory of the host; CUDA sees NVIDIA's GPUs.",
     "CUDA does not see device vulkan (llvmpipe): no memory is shared with it."),
    ("E809", "DeviceError", "CUDA|DLDevice|device of kind", "An array on another device cannot be read",
     "Copy it to the host: array.cpu(), np.asarray; of a graph's estimates device_array('estimate', 'cpu').",
     "An array is on a CUDA device, and the driver does not start: error 100."),
    ("E800", "DeviceError", "", "A device cannot do what was asked",
     "Another device or option, as the message says; device='cpu' does all.",
     "The arguments are on different devices."),
    ("E811", "RankError", "", "Ranks failed",
     "The first rank's message is the cause; start all with one mpirun.", "Rank 3 failed: out of memory"),
    ("E901", "UsageError", "", "The command line cannot be understood", "graphopt COMMAND --help.",
     "Unknown option '--itterations'. Did you mean '--iterations'?"),
    ("E902", "ImportError", "", "A module cannot be loaded", "Install the package or extra in the message.",
     "graphopt.torch needs PyTorch: pip install 'graphopt[torch]'."),
    ("E903", "HostMemoryError MemoryError", "", "Out of memory",
     "graphopt explain FILE predicts what a run takes, and names smaller ways.", "Out of memory."),
    ("E900", "GraphOptError", "", "The call ended early", "The message says why, and what was written.",
     "Interrupted. Nothing was written."),
))  # fmt: skip


@functools.cache
def causes() -> dict[str, Cause]:
    """All causes by code."""
    return {cause.code: cause for cause in CAUSES}


def cause_of(kind: type[BaseException], message: str) -> Cause | None:
    """The cause of an error; None for classes that this package neither raises nor explains."""
    for base in kind.__mro__:
        for cause in CAUSES:
            if base.__name__ in cause.errors.split() and re.search(cause.words, message):
                return cause
    return None


def with_code(text: str, code: str) -> str:
    """A message that ends with the command that explains it."""
    return f"{text} [graphopt explain {code}]"


def without_code(text: str) -> str:
    """A message, or one that quotes others, without these commands."""
    return re.sub(r" \[graphopt explain E\d{3}\]", "", text)


def pages(code: str = "") -> str:
    """Markdown about one cause, or all."""
    chosen = [causes()[code]] if code else list(CAUSES)
    return (
        "\n\n".join(
            f"## {cause.code}: {cause.title}\n\n{cause.fix}\n\n    {cause.errors.split()[0]}: {cause.example}"
            for cause in chosen
        )
        + "\n"
    )
