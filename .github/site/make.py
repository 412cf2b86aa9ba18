# SPDX-License-Identifier: Apache-2.0
"""Makes the site and the man pages of what the repository holds: make.py --doxygen PROGRAM --sphinx PROGRAM FOLDER
The man pages alone, of the library's headers, without Sphinx and Git: make.py --man FOLDER

FOLDER/pages is what Sphinx reads, FOLDER/html the site, FOLDER/man the man pages. Ends with 1 and a list if a link leads nowhere, if a
page loads something from elsewhere, or if Doxygen or Sphinx warn."""
import argparse
import html.parser
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LANGUAGES = {".c": "c", ".h": "c", ".hpp": "cpp", ".cpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".py": "python", ".sh": "bash", ".go": "go",
             ".jl": "julia", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
# The chapters of the reference, in the order in which one meets them: header, and what it is about.
CHAPTERS = {"stable": "ddp/ddp.h", "experimental": "ddp/experimental.h"}
FUNCTION = re.compile(r"\[`(ddp_\w+)`\]\(ddp/(\w+)\.h\)")  # in the tables of include/API.md
MACHINERY = ("DDP_API.3", "DDP_INT32.3", "DDP_NODISCARD.3")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def tracked():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, capture_output=True, text=True).stdout
    return [path for path in listed.splitlines() if os.path.isfile(os.path.join(ROOT, path))]


def outside_code(text, change):
    """`change` for the parts of a Markdown text that are no code."""
    parts = re.split(r"(^```.*?^```[^\n]*$|`[^`\n]+`)", text, flags=re.S | re.M)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))


def about_header(name):
    """What the first sentence of a header says that it has."""
    about = re.search(r"@file\n \* (.*?)(?:\n \*/|\n \*\n)", read(os.path.join(ROOT, f"include/ddp/{name}.h")), re.S)
    return re.sub(r"\s*\n \* ?", " ", about[1]).strip() if about else name


class Stage:
    """The pages that Sphinx reads. READMEs keep their place; a file that one of them links gets a page under files/."""

    def __init__(self, folder):
        self.folder = folder
        self.tracked = set(tracked())
        self.documents = {path for path in self.tracked
                          if path.endswith(".md") and not path.startswith((".github/site/pages", ".github/ISSUE", ".github/pull"))}
        self.files = set()
        self.problems = []
        pages = os.path.join(HERE, "pages")
        self.lists = "".join(read(os.path.join(pages, name)) for name in sorted(os.listdir(pages)) if name.endswith(".md"))

    @staticmethod
    def place(document):
        """Where a README becomes a page: folders that begin with a dot lose it, since Sphinx's search skips them."""
        return document.replace(".github/", "github/")

    def link(self, document, target):
        """What stands for a link of a README in its page."""
        if re.match(r"[a-z]+:|#", target):
            return target
        path, mark, anchor = target.partition("#")
        whole = os.path.normpath(os.path.join(os.path.dirname(document), urllib.parse.unquote(path)))
        base = os.path.dirname(self.place(document))
        if whole in self.documents:
            return os.path.relpath(self.place(whole), base or ".") + mark + anchor
        if whole + "/README.md" in self.documents:
            return os.path.relpath(self.place(whole) + "/README.md", base or ".")
        if whole == "include/ddp":
            return os.path.relpath("api/index.md", base or ".")
        if re.fullmatch(r"include/ddp/\w+\.h", whole) and whole != "include/ddp/dlpack.h":
            return os.path.relpath("api/" + os.path.basename(whole)[:-2] + ".md", base or ".")
        if whole in self.tracked:
            if whole.endswith((".svg", ".png")):
                destination = os.path.join(self.folder, whole)
                os.makedirs(os.path.dirname(destination), exist_ok=True)
                shutil.copyfile(os.path.join(ROOT, whole), destination)
                return target
            self.files.add(whole)
            return os.path.relpath(f"files/{whole}.md", base or ".")
        inside = sorted(path for path in self.tracked if path.startswith(whole + "/"))
        if inside:
            self.files.add(whole + "/")
            return os.path.relpath(f"files/{whole}/index.md", base or ".")
        self.problems.append(f"{document}: {target} leads nowhere")
        return target

    def stage_document(self, document):
        def change(text):
            return re.sub(r"(\]\()([^)\s]+)(\))", lambda found: found[1] + self.link(document, found[2]) + found[3], text)
        # A README that no list of pages/ has is found by links and by search.
        listed = f"{self.place(document)[:-3]}>" in self.lists
        head = "" if listed else "---\norphan: true\n---\n\n"
        text = read(os.path.join(ROOT, document))
        if document == "include/API.md":  # there a function's name leads to the function
            text = FUNCTION.sub(r'<a href="../api/\2.html#c.\1"><code>\1</code></a>', text)
        write(os.path.join(self.folder, self.place(document)), head + outside_code(text, change))

    def stage_files(self):
        done = set()
        while self.files - done:
            for path in sorted(self.files - done):
                done.add(path)
                if path.endswith("/"):
                    inside = sorted(each for each in self.tracked if each.startswith(path))
                    lines = [f"- [{each[len(path):]}]({os.path.relpath('files/' + each + '.md', 'files/' + path)})"
                             if each not in self.documents else
                             f"- [{each[len(path):]}]({os.path.relpath(self.place(each), 'files/' + path)})" for each in inside]
                    self.files.update(each for each in inside if each not in self.documents)
                    write(os.path.join(self.folder, "files", path, "index.md"),
                          "---\norphan: true\n---\n\n" + f"# {path}\n\n" + "\n".join(lines) + "\n")
                    continue
                try:
                    text = read(os.path.join(ROOT, path))
                except UnicodeDecodeError:
                    text = "(not a text)"
                if len(text) > 100_000:
                    text = text[:100_000].rsplit("\n", 1)[0] + "\n(and so on)\n"
                fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
                language = LANGUAGES.get(os.path.splitext(path)[1], "text")
                write(os.path.join(self.folder, "files", path + ".md"),
                      f"---\norphan: true\n---\n\n# {path}\n\n{fence}{language}\n{text}\n{fence}\n")

    def stage_api(self):
        shown = set()
        functions = {}  # of each header: the rows of its functions
        for row in re.findall(r"^\| \[`ddp_.*", read(os.path.join(ROOT, "include/API.md")), re.M):
            header = FUNCTION.search(row)[2]
            functions.setdefault(header, []).append(FUNCTION.sub(r'<a href="#c.\1"><code>\1</code></a>', row))
        parts = []
        for tier, umbrella in CHAPTERS.items():
            names = [name for name in re.findall(r'#include "ddp/(\w+)\.h"', read(os.path.join(ROOT, "include", umbrella)))
                     if name != "ddp" and name not in shown]
            shown.update(names)
            rows = []
            for name in names:
                about = about_header(name)
                rows.append(f"| [ddp/{name}.h]({name}.md) | {about} |")
                write(os.path.join(self.folder, f"api/{name}.md"),
                      f"# ddp/{name}.h\n\n" + self.function_table(functions.get(name, [])) + f"```{{eval-rst}}\n.. doxygenfile:: {name}.h\n   :sections: briefdescription detaileddescription "
                      "innerclass public-attrib define enum typedef func\n```\n")
            parts.append((tier, umbrella, names, rows))
        text = "# Reference\n\nA chapter is a header. The comments are those of the headers. [All functions](../include/API.md) has\none line for each; [the guide](../include/README.md) explains what they have in common.\n"
        for tier, umbrella, _, rows in parts:
            text += f"\n## {umbrella}: {tier}\n\n| | |\n| --- | --- |\n" + "\n".join(rows) + "\n"
        toctree = "\n".join(name for _, _, names, _ in parts for name in names)
        write(os.path.join(self.folder, "api/index.md"), text + f"\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n")

    @staticmethod
    def function_table(rows):
        return "| function | what it does | |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n\n" if rows else ""

    def stage(self):
        for document in sorted(self.documents):
            self.stage_document(document)
        for name in sorted(os.listdir(os.path.join(HERE, "pages"))):
            path = os.path.join(HERE, "pages", name)
            if name.endswith(".md"):
                write(os.path.join(self.folder, name), outside_code(read(path), lambda text: re.sub(
                    r"(\]\()([^)\s]+)(\))", lambda found: found[1] + self.page_link(found[2]) + found[3], text)))
            else:
                shutil.copyfile(path, os.path.join(self.folder, name))
        self.stage_api()
        self.stage_files()

    def page_link(self, target):
        """Pages link each other, the reference, or a file of the repository by its path from the root."""
        path = target.partition("#")[0]
        if re.match(r"[a-z]+:|#", target) or path.startswith("api/") or os.path.exists(os.path.join(HERE, "pages", path)):
            return target
        return self.link("README.md", target)


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(values[key] for key in ("id", "name") if values.get(key))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe", "object") and (values.get("src") or values.get("data")):
            self.loads.append(values.get("src") or values["data"])
        if tag == "link" and values.get("href") and values.get("rel") not in ("search", "index", "next", "prev", "author", "canonical"):
            self.loads.append(values["href"])


def check_links(folder):
    pages, problems, count = {}, [], 0
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(where, name)
                pages[path] = Links()
                pages[path].feed(read(path))
    for path, page in sorted(pages.items()):
        for target in page.loads + page.links:
            count += 1
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loads and parts.scheme != "data":
                    problems.append(f"{path} loads {target}")
                continue
            whole = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(parts.path))) if parts.path else path
            if not os.path.exists(whole):
                problems.append(f"{path}: {target} leads nowhere")
            elif parts.fragment and whole in pages and urllib.parse.unquote(parts.fragment) not in pages[whole].anchors:
                problems.append(f"{path}: {target} leads to no place of that page")
    return problems, f"{len(pages)} pages, {count} links"


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\nended with {done.returncode}")


def comments_for_doxygen(text):
    """What follows the parameters without being indented belongs to none of them, and errors are a paragraph of their own: Doxygen
    wants an empty line there. It takes a file's URL for a link."""
    lines, in_parameter = [], False
    for line in text.split("\n"):
        said = re.match(r"^ \* (\S.*)", line)
        ends = in_parameter and said and not said[1].startswith("@")
        if ends or (said and said[1].startswith("Errors:")):
            lines.append(" *")
        if said:
            in_parameter = said[1].startswith(("@param", "@return"))
        elif line.startswith((" */", "/**")):
            in_parameter = False
        lines.append(line)
    return re.sub(r"`file:///?(\w*)`", r"<tt>file&#58;///\1</tt>", "\n".join(lines))


def run_doxygen(doxygen, folder):
    headers = os.path.join(folder, "headers", "ddp")
    for name in sorted(os.listdir(os.path.join(ROOT, "include/ddp"))):
        if not name.endswith(".h"):
            continue  # C++ says what it adds in README.md
        write(os.path.join(headers, name), comments_for_doxygen(read(os.path.join(ROOT, "include/ddp", name))))
    run([doxygen, "-"], cwd=ROOT, input="\n".join([
        "PROJECT_NAME = libddp", f"INPUT = {headers}", f"STRIP_FROM_PATH = {os.path.dirname(headers)}", "FILE_PATTERNS = *.h", "OPTIMIZE_OUTPUT_FOR_C = YES", "GENERATE_HTML = NO",
        "GENERATE_LATEX = NO", "GENERATE_XML = YES", "XML_PROGRAMLISTING = NO", "GENERATE_MAN = YES", "MAN_LINKS = YES",
        "QUIET = YES", "WARNINGS = YES", "WARN_AS_ERROR = FAIL_ON_WARNINGS", "WARN_IF_UNDOCUMENTED = NO",
        "WARN_NO_PARAMDOC = NO", "WARN_IF_INCOMPLETE_DOC = NO", "MACRO_EXPANSION = YES", "EXPAND_ONLY_PREDEF = YES",
        "PREDEFINED = DDP_API= DDP_NODISCARD= DDP_INT32= ", "TYPEDEF_HIDES_STRUCT = YES", "EXTRACT_ALL = YES", f"OUTPUT_DIRECTORY = {folder}"]) + "\n")


def man_page(name, text):
    """A page of Doxygen's, called as its file is and with the line that `whatis` and `apropos` read."""
    link = re.fullmatch(r"\.so man3/(\w+\.h\.3)\s*", text)
    if link:
        return f".so man3/ddp_{link[1]}\n"
    text = re.sub(r"#include <(\w+\\&\.h)>", lambda found: f"#include <ddp/{found[1]}>", text)
    text = re.sub(r"^'", r"\\&'", text, flags=re.M)  # a word in quotes, and no request of groff's
    header = re.search(r"#include <ddp/(\w+)", text)
    about = f"a struct of <ddp/{header[1]}.h>" if header else ""
    if name.endswith(".h.3"):
        about = about_header(name[len("ddp_"):-len(".h.3")]).split(". ")[0].rstrip(".").replace("`", "")
    text = re.sub(r'^\.TH "[^"]*"( \d) "[^"]*"', lambda found: f'.TH "{name[:-2]}"{found[1]} ""', text, count=1, flags=re.M)
    return re.sub(r"^\.SH NAME\n.*", lambda found: f".SH NAME\n{name[:-2]}" + (f" \\- {about}" if about else ""), text, count=1, flags=re.M)


def write_man_pages(from_folder, to):
    """A page a function and a header, named and cross-linked as others are; Doxygen's pages of folders and files are left out."""
    os.makedirs(os.path.join(to, "man3"), exist_ok=True)
    count = 0
    for name in sorted(os.listdir(os.path.join(from_folder, "man", "man3"))):
        header = re.fullmatch(r"\w+\.h\.3", name)
        if header or (name.startswith(("ddp_", "DDP_")) and name not in MACHINERY):
            shown = "ddp_" + name if header else name
            write(os.path.join(to, "man3", shown), man_page(shown, read(os.path.join(from_folder, "man", "man3", name))))
            count += 1
    return count


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--doxygen", default="doxygen")
    arguments.add_argument("--sphinx", default="sphinx-build")
    arguments.add_argument("--man", action="store_true", help="FOLDER/man3 alone; what else is in FOLDER stays")
    arguments.add_argument("folder")
    chosen = arguments.parse_args()
    folder = os.path.abspath(chosen.folder)
    if chosen.man:
        with tempfile.TemporaryDirectory() as work:
            run_doxygen(chosen.doxygen, work)
            print(f"{write_man_pages(work, folder)} man pages")
        return
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    print("Doxygen reads the headers", flush=True)
    run_doxygen(chosen.doxygen, os.path.join(folder, "doxygen"))
    stage = Stage(os.path.join(folder, "pages"))
    stage.stage()
    version = re.search(r"project\(ddp VERSION (\S+)", read(os.path.join(ROOT, "CMakeLists.txt")))[1]
    print("Sphinx writes the site", flush=True)
    environment = {**os.environ, "DDP_VERSION": version, "DDP_XML": os.path.join(folder, "doxygen", "xml")}
    run([chosen.sphinx, "-q", "-W", "--keep-going", "-c", HERE, "-d", os.path.join(folder, "state"), stage.folder,
         os.path.join(folder, "html")], env=environment)
    men = write_man_pages(os.path.join(folder, "doxygen"), os.path.join(folder, "man"))
    problems, found = check_links(os.path.join(folder, "html"))
    problems = stage.problems + problems
    for problem in problems[:100]:
        print(problem)
    if problems:
        sys.exit(f"{len(problems)} problems")
    print(f"{found}: fine; {men} man pages\n{os.path.join(folder, 'html', 'index.html')}")


main()
