# `cmake --install build`: the libraries, the header, the program, pkg-config files.
get_property(libraries GLOBAL PROPERTY KILN_LIBRARIES)
foreach(name IN LISTS libraries)
  install(TARGETS ${name}_shared ${name}_static
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
if(TARGET kiln_program)
  install(TARGETS kiln_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
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
