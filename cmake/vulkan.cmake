# The Vulkan runtime (graphopt/_vulkan), the GLSL compiler (graphopt/_glslang) and the shaders as SPIR-V.
#
#   _vulkan   needs the Vulkan headers only; libvulkan is opened at run time
#   _glslang  needs glslang's static libraries; without it glslangValidator on the PATH or shipped SPIR-V serve
#   SPIR-V    one file per shader, access variant and precision in graphopt/device/spirv; needs glslangValidator
option(GRAPHOPT_VULKAN "Build the Vulkan block solver" ON)
set(GRAPHOPT_VULKAN_HEADERS "" CACHE PATH "Folder that holds vulkan/vulkan_core.h (empty: searched)")
if(NOT GRAPHOPT_VULKAN)
  message(STATUS "graphopt: built without Vulkan (GRAPHOPT_VULKAN=OFF)")
  return()
endif()

find_path(GRAPHOPT_VULKAN_INCLUDE vulkan/vulkan_core.h HINTS ${GRAPHOPT_VULKAN_HEADERS})
if(NOT GRAPHOPT_VULKAN_INCLUDE)
  message(WARNING "graphopt: no Vulkan headers, so it is built WITHOUT the Vulkan solver. On Debian and Ubuntu: "
                  "apt-get install libvulkan-dev; elsewhere set -DGRAPHOPT_VULKAN_HEADERS=<folder>, or silence this "
                  "with -DGRAPHOPT_VULKAN=OFF")
  return()
endif()

file(GLOB_RECURSE GRAPHOPT_VULKAN_SOURCES CONFIGURE_DEPENDS native/src/vulkan/*.cpp)
graphopt_module(_vulkan native/bindings/vulkan.cpp native/bindings/dlpack.cpp native/bindings/queues.cpp native/bindings/ranks.cpp ${GRAPHOPT_VULKAN_SOURCES}
                ${GRAPHOPT_PARALLEL})
target_include_directories(_vulkan SYSTEM PRIVATE ${GRAPHOPT_VULKAN_INCLUDE})
target_link_libraries(_vulkan PRIVATE ${CMAKE_DL_LIBS})

find_path(GRAPHOPT_GLSLANG_INCLUDE glslang/Public/ShaderLang.h)
find_library(GRAPHOPT_GLSLANG_LIBRARY NAMES libglslang.a)
find_library(GRAPHOPT_MACHINE_INDEPENDENT_LIBRARY NAMES libMachineIndependent.a)
if(GRAPHOPT_GLSLANG_INCLUDE AND GRAPHOPT_GLSLANG_LIBRARY AND GRAPHOPT_MACHINE_INDEPENDENT_LIBRARY)
  graphopt_module(_glslang native/bindings/glslang.cpp)
  target_include_directories(_glslang SYSTEM PRIVATE ${GRAPHOPT_GLSLANG_INCLUDE} ${GRAPHOPT_GLSLANG_INCLUDE}/glslang)
  foreach(library glslang MachineIndependent GenericCodeGen OSDependent OGLCompiler SPIRV
                  glslang-default-resource-limits HLSL SPIRV-Tools-opt SPIRV-Tools)
    find_library(GRAPHOPT_LIB_${library} NAMES lib${library}.a)
    if(GRAPHOPT_LIB_${library})
      target_link_libraries(_glslang PRIVATE ${GRAPHOPT_LIB_${library}})
    endif()
  endforeach()
  target_link_options(_glslang PRIVATE LINKER:--exclude-libs,ALL)
else()
  message(WARNING "graphopt: no static glslang libraries, so graphopt.pyglslang will need glslangValidator on the "
                  "PATH. On Debian: apt-get install glslang-dev spirv-tools")
endif()

# Generated kernels include them when they are compiled, on the user's machine.
file(GLOB GRAPHOPT_SHADER_HEADERS CONFIGURE_DEPENDS shaders/include/*.glsl)
install(FILES ${GRAPHOPT_SHADER_HEADERS} DESTINATION ${GRAPHOPT_INSTALL_DIR}/device/include)

find_program(GRAPHOPT_GLSLANG_VALIDATOR glslangValidator)
set(GRAPHOPT_SPIRV_DIR ${CMAKE_CURRENT_BINARY_DIR}/spirv)
if(GRAPHOPT_GLSLANG_VALIDATOR)
  file(GLOB GRAPHOPT_SHADERS CONFIGURE_DEPENDS shaders/*.comp)
  set(GRAPHOPT_SPIRV "")
  foreach(shader IN LISTS GRAPHOPT_SHADERS)
    get_filename_component(name ${shader} NAME_WE)
    foreach(access address storage)
      foreach(precision double mixed)
        set(output ${GRAPHOPT_SPIRV_DIR}/${name}.${access}.${precision}.spv)
        string(TOUPPER "GRAPHOPT_${access}" access_macro)
        string(TOUPPER "GRAPHOPT_${precision}" precision_macro)
        add_custom_command(
          OUTPUT ${output}
          COMMAND ${CMAKE_COMMAND} -E make_directory ${GRAPHOPT_SPIRV_DIR}
          COMMAND ${GRAPHOPT_GLSLANG_VALIDATOR} --quiet --target-env vulkan1.2 -D${access_macro}=1
                  -D${precision_macro}=1 -I${CMAKE_CURRENT_SOURCE_DIR}/shaders/include -o ${output} ${shader}
          DEPENDS ${shader} ${GRAPHOPT_SHADER_HEADERS} VERBATIM)
        list(APPEND GRAPHOPT_SPIRV ${output})
      endforeach()
    endforeach()
  endforeach()
  add_custom_target(graphopt_spirv ALL DEPENDS ${GRAPHOPT_SPIRV})
  install(FILES ${GRAPHOPT_SPIRV} DESTINATION ${GRAPHOPT_INSTALL_DIR}/device/spirv)
else()
  message(WARNING "graphopt: no glslangValidator, so no shaders are compiled now. They must come from "
                  "graphopt/device/spirv of another build. On Debian and Ubuntu: apt-get install glslang-tools")
endif()
