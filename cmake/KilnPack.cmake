# kiln_add_pack(TARGET [OUTPUT FILE] SELECTION FLAG...): a target that builds a pack of kernels, for
# example
#   kiln_add_pack(attention SELECTION --arch sm_80,sm_90a --dtype bf16 --head-dim 64,128)
# FLAGs are those of `kiln pack build`. FILE: default TARGET.pack in the binary directory; the
# target's property KILN_PACK names it. Part of `all`; built again when the selection or Kiln's
# program changes and at no other time. Needs NVRTC (`kiln doctor` says where it is looked for) and
# no GPU.
function(kiln_add_pack target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT" "SELECTION")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SELECTION)
    message(FATAL_ERROR "kiln_add_pack(${target} ...) takes OUTPUT FILE and SELECTION FLAG...")
  endif()
  if(NOT arg_OUTPUT)
    set(arg_OUTPUT ${target}.pack)
  endif()
  get_filename_component(pack ${arg_OUTPUT} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_BINARY_DIR})
  # A custom command does not depend on its own words in every generator: a file of them does.
  set(words ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.selection)
  file(CONFIGURE OUTPUT ${words} CONTENT "${arg_SELECTION}\n" @ONLY)
  add_custom_command(OUTPUT ${pack}
                     COMMAND Kiln::program pack build ${arg_SELECTION} -o ${pack}
                     DEPENDS $<TARGET_FILE:Kiln::program> ${words}
                     COMMENT "Building the kernel pack ${arg_OUTPUT}"
                     VERBATIM)
  add_custom_target(${target} ALL DEPENDS ${pack})
  set_target_properties(${target} PROPERTIES KILN_PACK ${pack})
endfunction()
