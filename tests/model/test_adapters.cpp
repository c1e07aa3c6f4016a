// The adapters of one product, against the formula in fp64.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "model/adapters.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model {

TEST_CASE("adapters of two projections add s B A x to their columns, and their gradients match the formula") {
  for (const double rate : {0.0, 0.5}) {
    CAPTURE(rate);
    const int64_t tokens = 8, in = 5, r = 2;
    const double scale = 1.5;
    // A matrix of the layer; A of both; B of both. The product has 9 columns, of which the second three have no
    // adapter.
    const at::Tensor flat = at::randn({2 * r * in + 6 * r}, at::kDouble);
    const std::vector<at::Tensor> layer = {at::randn({9, in}, at::kDouble), flat.narrow(0, 0, r * in).view({r, in}),
                                           flat.narrow(0, r * in, r * in).view({r, in}),
                                           flat.narrow(0, 2 * r * in, 3 * r).view({3, r}),
                                           flat.narrow(0, 2 * r * in + 3 * r, 3 * r).view({3, r})};
    LoraLayout layout;
    layout[2] = {{.weight = 0, .a = 1, .b = 3, .begin = 0, .count = 3},
                 {.weight = 0, .a = 2, .b = 4, .begin = 6, .count = 3}};
    Matmuls matmuls;
    Dropout dropout{.rate = rate, .seed = {.seed = 7, .first_sample = 5}, .sequences = 2};
    dropout.place = LayerAdapters::first_place(3);
    const LayerAdapters adapters(layout, scale, layer, matmuls, dropout);
    dropout.place += 2;
    const at::Tensor kept = after_dropout(at::ones({tokens, in}, at::kDouble), dropout);
    const at::Tensor x = at::randn({tokens, in}, at::kDouble), dy = at::randn({tokens, 9}, at::kDouble);
    const at::Tensor y = at::zeros({tokens, 9}, at::kDouble);
    const at::Tensor z = adapters.forward(LayerProduct::kGateUp, x, y);
    at::Tensor dx = at::zeros({tokens, in}, at::kDouble);
    const at::Tensor dz = adapters.data_gradient(LayerProduct::kGateUp, dy, dx);
    std::vector<Gradient> gradients(1, Gradient::unwanted({9, in}));
    for (size_t i = 1; i < layer.size(); ++i) gradients.emplace_back(at::zeros(layer[i].sizes(), at::kDouble));
    adapters.weight_gradients(LayerProduct::kGateUp, dy, dz, x, z, gradients);

    const at::Tensor read = x * kept;
    at::Tensor expected_dx = at::zeros_like(dx);
    for (const LoraAdapter& adapter : layout[2]) {
      const at::Tensor &a = layer[adapter.a], &b = layer[adapter.b];
      const at::Tensor of_dy = dy.narrow(1, adapter.begin, adapter.count);
      CHECK(relative_error(y.narrow(1, adapter.begin, adapter.count), scale * read.mm(a.t()).mm(b.t())) < 1e-13);
      CHECK(relative_error(gradients[adapter.a].view(), scale * of_dy.mm(b).t().mm(read)) < 1e-13);
      CHECK(relative_error(gradients[adapter.b].view(), scale * of_dy.t().mm(read.mm(a.t()))) < 1e-13);
      expected_dx += scale * of_dy.mm(b).mm(a) * kept;
    }
    CHECK(relative_error(dx, expected_dx) < 1e-13);
    CHECK(y.narrow(1, 3, 3).eq(0).all().item<bool>());
    CHECK(!adapters.forward(LayerProduct::kDown, x, y).defined());
  }
}

}  // namespace mpzero::model
