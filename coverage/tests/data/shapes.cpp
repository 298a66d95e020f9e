#include <map>
#include <stdexcept>
#include <string>

namespace shapes {

template <typename T>
class Store {
public:
    void put(const std::string &name, T value) {
        values[name] = value;
    }
    T get(const std::string &name) const {
        auto found = values.find(name);
        if (found == values.end())
            throw std::out_of_range(name);
        return found->second;
    }
private:
    std::map<std::string, T> values;
};

int area(int width, int height) {
    return width * height;
}

}

int main(int argc, char **argv) {
    shapes::Store<int> ints;
    shapes::Store<long> longs;
    ints.put("a", shapes::area(argc, 3));
    longs.put("b", 4);
    auto sum = [&](int more) {
        return ints.get("a") + static_cast<int>(longs.get("b")) + more;
    };
    try {
        ints.get(argv[0]);
    } catch (const std::out_of_range &) {
        return sum(0);
    }
    return 1;
}
