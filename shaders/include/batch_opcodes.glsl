// Operations of batches of expressions: native/src/batch/expression.h has the same order (a test compares them).
const uint OP_CONST = 0, OP_DATA = 1, OP_PARAMETER = 2, OP_ADD = 3, OP_SUB = 4, OP_MUL = 5, OP_DIV = 6, OP_POW = 7,
  OP_ATAN2 = 8, OP_MIN = 9, OP_MAX = 10, OP_LT = 11, OP_LE = 12, OP_EQ = 13, OP_AND = 14, OP_OR = 15, OP_NEG = 16,
  OP_ABS = 17, OP_SIGN = 18, OP_FLOOR = 19, OP_NOT = 20, OP_SQRT = 21, OP_EXP = 22, OP_LOG = 23, OP_SIN = 24,
  OP_COS = 25, OP_TAN = 26, OP_ASIN = 27, OP_ACOS = 28, OP_ATAN = 29, OP_SELECT = 30;
