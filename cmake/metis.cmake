# METIS, which orders the blocks of the sparse Cholesky factorization: target `graphopt_metis`.
#
#   GRAPHOPT_METIS_SOURCE  folder with METIS 5.1's own include/, libmetis/ and GKlib/: compiled into the modules,
#                          so that a wheel needs no library (tools/build_wheels.sh)
#   otherwise              the system's library
set(GRAPHOPT_METIS_SOURCE "" CACHE PATH "METIS sources to compile in (empty: the system's METIS)")

add_library(graphopt_metis INTERFACE)
if(GRAPHOPT_METIS_SOURCE)
  enable_language(C)
  file(GLOB GRAPHOPT_METIS_FILES ${GRAPHOPT_METIS_SOURCE}/libmetis/*.c ${GRAPHOPT_METIS_SOURCE}/GKlib/*.c)
  if(NOT GRAPHOPT_METIS_FILES)
    message(FATAL_ERROR "GRAPHOPT_METIS_SOURCE is ${GRAPHOPT_METIS_SOURCE}, where no libmetis/*.c is")
  endif()
  # indices have 32 bits as in Debian's METIS; distributions of the sources set 64
  file(READ ${GRAPHOPT_METIS_SOURCE}/include/metis.h GRAPHOPT_METIS_HEADER)
  string(REGEX REPLACE "#define IDXTYPEWIDTH [0-9]+" "#define IDXTYPEWIDTH 32" GRAPHOPT_METIS_HEADER
         "${GRAPHOPT_METIS_HEADER}")
  file(CONFIGURE OUTPUT metis/metis.h CONTENT "${GRAPHOPT_METIS_HEADER}" @ONLY)
  add_library(graphopt_metis_objects STATIC ${GRAPHOPT_METIS_FILES})
  target_include_directories(graphopt_metis_objects PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/metis
    ${GRAPHOPT_METIS_SOURCE}/libmetis ${GRAPHOPT_METIS_SOURCE}/GKlib)
  target_compile_definitions(graphopt_metis_objects PRIVATE NDEBUG NDEBUG2 LINUX _FILE_OFFSET_BITS=64 HAVE_GETLINE)
  target_compile_options(graphopt_metis_objects PRIVATE -std=gnu99 -O3 -fno-strict-aliasing -fvisibility=hidden -w)
  target_link_libraries(graphopt_metis INTERFACE graphopt_metis_objects)
  target_include_directories(graphopt_metis SYSTEM INTERFACE ${CMAKE_CURRENT_BINARY_DIR}/metis)
else()
  find_path(METIS_INCLUDE_DIR metis.h)
  find_library(METIS_LIBRARY metis)
  if(NOT METIS_INCLUDE_DIR OR NOT METIS_LIBRARY)
    message(FATAL_ERROR "METIS was not found. On Debian: apt-get install libmetis-dev; or set "
                        "-DGRAPHOPT_METIS_SOURCE=<folder of METIS 5.1>")
  endif()
  target_link_libraries(graphopt_metis INTERFACE ${METIS_LIBRARY})
  target_include_directories(graphopt_metis SYSTEM INTERFACE ${METIS_INCLUDE_DIR})
endif()
