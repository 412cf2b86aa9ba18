#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is inside built files of libddp, and under which licences, as an SPDX 2.3 document in JSON.

  pkgconfig/sbom.py FILE... >libddp.spdx.json      FILE: libddp.so, ddprun, libddp_gloo.so, libddp_cuda.so

For each file: its checksum; the libraries whose code is compiled into it (INSIDE), with their licences, and with their versions where the
system's package manager knows them; and the libraries that it loads at its start (readelf). The same files give the same document: its date is
SOURCE_DATE_EPOCH, or that of the newest commit. Tested by abi/sbom_test.py."""
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# name: licence, Debian package that it is compiled from, soname (it is not inside a file that loads this)
LIBRARIES = {
    "asio": ("BSL-1.0", "libasio-dev", None),
    "nlohmann-json": ("MIT", "nlohmann-json3-dev", None),
    "libsodium": ("ISC", "libsodium-dev", "libsodium.so"),
    "xxhash": ("BSD-2-Clause", "libxxhash-dev", "libxxhash.so"),
    "cli11": ("BSD-3-Clause", "libcli11-dev", None),
    "libstdc++": ("GPL-3.0-or-later WITH GCC-exception-3.1", None, "libstdc++.so"),
    "gloo": ("BSD-3-Clause", "libgloo-dev", "libgloo.so"),
    "openssl": ("Apache-2.0", "libssl-dev", "libssl.so"),
    "cuda-cudart": ("LicenseRef-NVIDIA-CUDA-Toolkit", None, "libcudart.so"),
}
CORE = ("asio", "nlohmann-json", "libsodium", "xxhash", "libstdc++")
INSIDE = {  # by the beginning of a file's name; every file has what its sources include or link
    "libddp_gloo": ("libstdc++", "gloo", "openssl"),
    "libddp_cuda": ("libstdc++", "cuda-cudart"),
    "libddp": CORE,
    "ddprun": CORE + ("cli11",),
}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"^project\(ddp VERSION ([0-9.]+) ", file.read(), re.M)[1]


def date():
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "-C", ROOT, "log", "-1", "--format=%ct") or "0"
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def loaded(path):
    """Sonames that the loader opens for this file."""
    return sorted(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", path)))


def inside(path, sonames):
    names = next((names for start, names in INSIDE.items() if os.path.basename(path).startswith(start)), None)
    if names is None:
        raise SystemExit(f"{path}: pkgconfig/sbom.py does not know a file of this name")
    plain = [re.sub(r"-[0-9a-f]{8}(?=\.so)", "", soname) for soname in sonames]  # a wheel brings libraries under names with a hash
    return [name for name in names if not any(soname.startswith(LIBRARIES[name][2] or "/") for soname in plain)]


def package(identity, name, number, licence, purpose):
    return {"SPDXID": identity, "name": name, "versionInfo": number, "licenseConcluded": "NOASSERTION", "licenseDeclared": licence,
            "copyrightText": "NOASSERTION", "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "primaryPackagePurpose": purpose}


def identity_of(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def document(paths):
    packages = {"SPDXRef-libddp": package("SPDXRef-libddp", "libddp", version(), "Apache-2.0", "LIBRARY")}
    files, relations, sums = [], [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-libddp")], hashlib.sha256()
    for path in sorted(paths, key=os.path.basename):
        with open(path, "rb") as file:
            content = file.read()
        name, sonames = os.path.basename(path), loaded(path)
        sums.update(hashlib.sha256(content).digest())
        files.append({"SPDXID": identity_of("File-" + name), "fileName": "./" + name, "licenseConcluded": "NOASSERTION",
                      "copyrightText": "NOASSERTION", "fileTypes": ["BINARY"],
                      "checksums": [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(content).hexdigest()},
                                    {"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()}]})
        relations += [("SPDXRef-DOCUMENT", "DESCRIBES", files[-1]["SPDXID"]), (files[-1]["SPDXID"], "GENERATED_FROM", "SPDXRef-libddp")]
        for each in inside(path, sonames):
            licence, debian, _ = LIBRARIES[each]
            number = debian and run("dpkg-query", "-W", "-f", "${Version}", debian)
            packages[each] = package(identity_of(each), each, number or "NOASSERTION", licence, "LIBRARY")
            relations.append((files[-1]["SPDXID"], "STATIC_LINK", packages[each]["SPDXID"]))
        for soname in sonames:
            packages[soname] = package(identity_of(soname), soname, "NOASSERTION", "NOASSERTION", "LIBRARY")
            relations.append((files[-1]["SPDXID"], "DYNAMIC_LINK", packages[soname]["SPDXID"]))
    foreign = [{"licenseId": "LicenseRef-NVIDIA-CUDA-Toolkit", "extractedText": "See the license agreement of NVIDIA's CUDA Toolkit."}]
    used = any(each["licenseDeclared"].startswith("LicenseRef") for each in packages.values())
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"libddp-{version()}",
            "documentNamespace": f"https://spdx.org/spdxdocs/libddp-{version()}-{sums.hexdigest()}",
            "creationInfo": {"created": date(), "creators": ["Tool: libddp-pkgconfig-sbom.py"]},
            "packages": list(packages.values()), "files": files, **({"hasExtractedLicensingInfos": foreign} if used else {}),
            "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other} for one, kind, other in relations]}


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: pkgconfig/sbom.py FILE...")
    json.dump(document(sys.argv[1:]), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
