# SPDX-License-Identifier: Apache-2.0
# cmake -D IN=report.html -D OUT=report_html.cpp -P embed.cmake: the file as a string of the program.
file(READ "${IN}" text)
file(WRITE "${OUT}" "#include \"ddprun/page.hpp\"\nconst char* const ddp::ddprun::kReportPage = R\"page(${text})page\";\n")
