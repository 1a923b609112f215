# `cmake --install build`: libraries, header, program, its manual and completions, CMake package,
# pkg-config files.
include(CMakePackageConfigHelpers)
get_property(libraries GLOBAL PROPERTY KILN_LIBRARIES)
foreach(name IN LISTS libraries)
  set_target_properties(${name}_shared PROPERTIES EXPORT_NAME ${name})
  install(TARGETS ${name}_shared EXPORT KilnExports LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # Without an export: it would name the archives of this machine. pkg-config --static knows them.
  install(TARGETS ${name}_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
if(TARGET kiln_program)
  set_target_properties(kiln_program PROPERTIES EXPORT_NAME program)
  install(TARGETS kiln_program EXPORT KilnExports RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS kiln_measure RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/kiln)

  # Made from the help of the program that was just built.
  set(manual ${CMAKE_BINARY_DIR}/manual)
  add_custom_command(OUTPUT ${manual}/stamp
                     COMMAND ${CMAKE_SOURCE_DIR}/tools/manual.sh
                             $<TARGET_FILE:kiln_program> ${manual}
                     COMMAND ${CMAKE_COMMAND} -E touch ${manual}/stamp
                     DEPENDS kiln_program ${CMAKE_SOURCE_DIR}/tools/manual.sh
                     COMMENT "Writing the manual and the completions"
                     VERBATIM)
  add_custom_target(kiln_manual ALL DEPENDS ${manual}/stamp)
  install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${manual}/bash/kiln
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${manual}/zsh/_kiln DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${manual}/fish/kiln.fish
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Kiln)
install(EXPORT KilnExports NAMESPACE Kiln:: DESTINATION ${package})
configure_package_config_file(cmake/KilnConfig.cmake.in ${CMAKE_BINARY_DIR}/KilnConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/KilnConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/KilnConfig.cmake ${CMAKE_BINARY_DIR}/KilnConfigVersion.cmake
              cmake/KilnPack.cmake DESTINATION ${package})
install(DIRECTORY include/kiln DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# Relative to the file itself, so that `cmake --install build --prefix P` gives files that fit P.
file(RELATIVE_PATH KILN_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(KILN_PC_PREFIX "\${pcfiledir}/${KILN_PC_PREFIX}")

function(kiln_install_pkgconfig name archives)
  set(KILN_PC_NAME ${name})
  set(KILN_PC_ARCHIVES "${archives}")
  configure_file(cmake/kiln.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
kiln_install_pkgconfig(kiln "lua5.4 jansson libsodium")
kiln_install_pkgconfig(kiln_rt "jansson libsodium")
