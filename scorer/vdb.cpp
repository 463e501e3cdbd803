// What the scorer needs of OpenVDB: a solver's velocity as a dense array, and the signed distance of a mesh.
//
//   scorer-vdb velocity IN OUT nx ny nz   IN: a VDB file with a Vec3S grid `velocity`
//   scorer-vdb surface  IN OUT nx ny nz   IN: int32 V, int32 T, V x 3 float32, T x 3 int32
//   scorer-vdb serve nx ny nz             the same for many inputs in one process, see serve()
//
// OUT: raw float32 of the cells [0, n), C order over (nx, ny, nz) or (nx, ny, nz, 3). Numbers are little-endian.
// Exit status 1 and one line on standard error when it fails. OMP_NUM_THREADS (default 1) bounds the threads.

#include <openvdb/openvdb.h>
#include <openvdb/tools/Dense.h>
#include <openvdb/tools/MeshToVolume.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

const char *const USAGE = "usage: scorer-vdb velocity|surface input output nx ny nz";
constexpr int64_t MOST_CELLS = int64_t(1) << 31;

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Mesh {
    std::vector<openvdb::Vec3s> points;
    std::vector<openvdb::Vec3I> triangles;
};

int number(const char *text) {
    char *end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > std::numeric_limits<int32_t>::max()) throw Failure(USAGE);
    return int(value);
}

// Dimensions from three arguments.
openvdb::Coord dimensions(char **texts) {
    const openvdb::Coord dims(number(texts[0]), number(texts[1]), number(texts[2]));
    if (int64_t(dims.x()) * dims.y() > MOST_CELLS || int64_t(dims.x()) * dims.y() * dims.z() > MOST_CELLS)
        throw Failure("grid has too many cells");
    return dims;
}

// Rows of three 4-byte numbers, in pieces: a count that the input does not hold costs no memory.
template <typename Row> std::vector<Row> rows(std::istream &in, int32_t count) {
    static_assert(sizeof(Row) == 12, "a row is three 4-byte numbers");
    constexpr int32_t PIECE = 1 << 20;
    std::vector<Row> found;
    while (int32_t(found.size()) < count) {
        const size_t start = found.size();
        const int32_t more = std::min(PIECE, count - int32_t(start));
        found.resize(start + more);
        in.read(reinterpret_cast<char *>(found.data() + start), std::streamsize(more) * 12);
        if (!in) throw Failure("truncated mesh input");
    }
    return found;
}

Mesh read_mesh(std::istream &in) {
    int32_t counts[2] = {0, 0};
    in.read(reinterpret_cast<char *>(counts), sizeof counts);
    if (!in || counts[0] < 0 || counts[1] < 0) throw Failure("truncated mesh input");
    Mesh mesh;
    mesh.points = rows<openvdb::Vec3s>(in, counts[0]);
    mesh.triangles = rows<openvdb::Vec3I>(in, counts[1]);
    return mesh;
}

template <typename Grid> std::vector<typename Grid::ValueType> dense(const Grid &grid, const openvdb::Coord &dims) {
    using Value = typename Grid::ValueType;
    std::vector<Value> values(size_t(dims.x()) * dims.y() * dims.z());
    const openvdb::CoordBBox box(openvdb::Coord(0), dims.offsetBy(-1));
    // ZYX: z is the fastest index, C order over (x, y, z).
    openvdb::tools::Dense<Value, openvdb::tools::LayoutZYX> view(box, values.data());
    openvdb::tools::copyToDense(grid, view);
    return values;
}

// Signed distance in voxels, within +-3; negative inside. Voxel (i, j, k) is the point (i, j, k).
std::vector<float> surface(const Mesh &mesh, const openvdb::Coord &dims) {
    for (const auto &triangle : mesh.triangles)
        for (int corner = 0; corner < 3; ++corner)
            if (triangle[corner] >= mesh.points.size()) throw Failure("face index out of range");
    const auto transform = openvdb::math::Transform::createLinearTransform(1.0);
    const auto grid = openvdb::tools::meshToLevelSet<openvdb::FloatGrid>(*transform, mesh.points, mesh.triangles);
    return dense(*grid, dims);
}

std::vector<openvdb::Vec3s> velocity(const std::string &path, const openvdb::Coord &dims) {
    openvdb::io::File file(path);
    file.open(/*delayLoad=*/false);
    const auto grid = openvdb::gridPtrCast<openvdb::Vec3SGrid>(file.readGrid("velocity"));
    if (!grid) throw Failure("velocity must be a Vec3S grid");
    const auto base = grid->getMetadata<openvdb::Vec3IMetadata>("file_base_resolution");
    if (!base || openvdb::Coord(base->value()) != dims) throw Failure("velocity resolution disagrees with configuration");
    return dense(*grid, dims);
}

template <typename Value> void write(std::ostream &out, const std::vector<Value> &values) {
    out.write(reinterpret_cast<const char *>(values.data()), std::streamsize(values.size() * sizeof(Value)));
    out.flush();
    if (!out) throw Failure("cannot write dense grid");
}

void convert(const std::string &op, const std::string &input, const std::string &output, const openvdb::Coord &dims) {
    if (op == "velocity") {
        const auto values = velocity(input, dims);
        std::ofstream out(output, std::ios::binary);
        write(out, values);
    } else if (op == "surface") {
        std::ifstream in(input, std::ios::binary);
        const auto values = surface(read_mesh(in), dims);
        std::ofstream out(output, std::ios::binary);
        write(out, values);
    } else {
        throw Failure("unknown grid operation: " + op);
    }
}

// The text of whatever was thrown, on one line.
std::string reason(std::exception_ptr thrown) {
    std::string text = "unknown failure";
    try {
        std::rethrow_exception(thrown);
    } catch (const std::bad_alloc &) {
        text = "not enough memory";
    } catch (const std::exception &error) {
        text = error.what();
    } catch (...) {
    }
    for (char &letter : text)
        if (letter == '\n' || letter == '\r') letter = ' ';
    return text;
}

void put(int32_t value) { std::cout.write(reinterpret_cast<const char *>(&value), sizeof value); }

// Answer a request read from standard input: `velocity\0PATH\0`, or `surface\0` and a mesh.
template <typename Work> void answer(Work work) {
    decltype(work()) values;
    try {
        values = work();
    } catch (...) {
        const std::string text = reason(std::current_exception());
        put(int32_t(std::max<size_t>(1, text.size())));
        std::cout << (text.empty() ? " " : text) << std::flush;
        return;
    }
    put(0);
    write(std::cout, values);
}

// Until standard input ends. Says int32 0 once it can work; each answer is int32 0 and the raw values, or the length
// of an error text and the text.
void serve(const openvdb::Coord &dims) {
    put(0);
    std::cout.flush();
    for (std::string op; std::getline(std::cin, op, '\0');) {
        if (op == "surface") {
            const Mesh mesh = read_mesh(std::cin);
            answer([&] { return surface(mesh, dims); });
        } else if (op == "velocity") {
            std::string path;
            std::getline(std::cin, path, '\0');
            answer([&] { return velocity(path, dims); });
        } else {
            throw Failure("unknown grid operation: " + op);
        }
    }
}

int threads() {
    const char *text = std::getenv("OMP_NUM_THREADS");
    return std::max(1, text ? std::atoi(text) : 1);
}

void run(int count, char **arguments) {
    const std::string op = count > 1 ? arguments[1] : "";
    const bool serving = op == "serve" && count == 5;
    if (!serving && count != 7) throw Failure(USAGE);
    const openvdb::Coord dims = dimensions(arguments + count - 3);
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, size_t(threads()));
    openvdb::initialize();
    if (serving)
        serve(dims);
    else
        convert(op, arguments[2], arguments[3], dims);
}

}  // namespace

int main(int count, char **arguments) {
    std::ios::sync_with_stdio(false);
    try {
        run(count, arguments);
    } catch (...) {
        std::cerr << reason(std::current_exception()) << std::endl;
        return 1;
    }
    return 0;
}
